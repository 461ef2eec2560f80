package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/ratchetmq/ratchet/message"
	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

const (
	demoTopic    = "RatchetDemo"
	demoMessages = 5
)

// runDemo shows a newcomer that a broker works: it looks up the route as a client does, sends a few messages and reads
// them back.
func runDemo(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	name := flags.String("n", "127.0.0.1:9876", "name server, `host:port`")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	client, err := remoting.NewClient(remoting.ClientConfig{})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	d := demo{client: client, name: *name}
	if err := d.findBroker(ctx); err != nil {
		return fmt.Errorf("%w\nIs a broker running? Start one with: ratchet dev", err)
	}
	fmt.Printf("name server %s says: ask broker %s\n", *name, d.broker)
	first, err := d.sendAll(ctx)
	if err != nil {
		return err
	}
	return d.receiveAll(ctx, first)
}

type demo struct {
	client *remoting.Client
	name   string
	broker string
}

// call sends a request and turns an answer with an error code into an error.
func (d *demo) call(ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header, body []byte) (
	*remoting.Response, error,
) {
	resp, err := d.client.Call(ctx, addr, code, h, nil, body)
	if err != nil {
		return nil, err
	}
	if resp.Code != int32(protocol.Success) {
		return nil, fmt.Errorf("%s answers %s: %s", addr, protocol.ResponseCode(resp.Code), resp.Remark)
	}
	return resp, nil
}

// findBroker asks for the route of the topic that new topics are made after.
func (d *demo) findBroker(ctx context.Context) error {
	resp, err := d.call(ctx, d.name, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: "TBW102"}, nil)
	if err != nil {
		return err
	}
	var route protocol.TopicRouteData
	if err := protocol.Unmarshal(resp.Body, &route); err != nil {
		return err
	}
	for _, b := range route.BrokerDatas {
		if addr, ok := b.BrokerAddrs[0]; ok {
			d.broker = addr
			return nil
		}
	}
	return errors.New("the name server knows no master broker")
}

// sendAll sends the messages to queue 0 and returns the first one's queue offset.
func (d *demo) sendAll(ctx context.Context) (first int64, err error) {
	for i := range demoMessages {
		resp, err := d.call(ctx, d.broker, protocol.SendMessageV2, &protocol.SendMessageRequest{
			ProducerGroup: "ratchet_demo", Topic: demoTopic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 1,
			BornTimestamp: time.Now().UnixMilli(),
			Properties:    message.AppendProperty(nil, message.PropertyTags, "demo"),
		}, fmt.Appendf(nil, "hello %d", i+1))
		if err != nil {
			return 0, err
		}
		var h protocol.SendMessageResponse
		if err := resp.ReadHeader(&h); err != nil {
			return 0, err
		}
		if i == 0 {
			first = h.QueueOffset
		}
		fmt.Printf("sent      %q  queue %d offset %d  id %s\n", fmt.Sprintf("hello %d", i+1), h.QueueID, h.QueueOffset, h.MsgID)
	}
	return first, nil
}

func (d *demo) receiveAll(ctx context.Context, from int64) error {
	for end := from + demoMessages; from < end; {
		resp, err := d.call(ctx, d.broker, protocol.PullMessage, &protocol.PullMessageRequest{
			ConsumerGroup: "ratchet_demo", Topic: demoTopic, QueueOffset: from, MaxMsgNums: 32,
			SysFlag: 2 | 4, SuspendTimeoutMillis: 5000, Subscription: "*", ExpressionType: "TAG",
		}, nil)
		if err != nil {
			return err
		}
		for body := resp.Body; len(body) > 0; {
			r, err := message.Parse(body)
			if err != nil {
				return err
			}
			fmt.Printf("received  %q  queue %d offset %d\n", r.Body, r.QueueID, r.QueueOffset)
			body, from = body[r.Size:], int64(r.QueueOffset)+1
		}
	}
	return nil
}
