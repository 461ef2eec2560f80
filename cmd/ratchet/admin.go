package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ratchetmq/ratchet/protocol"
	"github.com/ratchetmq/ratchet/remoting"
)

const adminUsage = `ratchet admin - what an operator asks of brokers

  ratchet admin replicas -b host:port            a broker's part in replication: who has how much, what is waited for
  ratchet admin open     -b host:port            a master that waits for its replicas goes on with what it has
  ratchet admin forget   -b host:port -peer host:port
                                                 no broker at -peer will come back: nobody need wait for it
  ratchet admin switch   -b host:port -to host:port
                                                 the master at -b hands its role over to the slave at -to, without loss
`

const adminTimeout = 60 * time.Second

// runAdmin sends an operator's orders. The exit code is 0 when an order was carried out.
func runAdmin(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		fmt.Print(adminUsage)
		return nil
	}
	flags := flag.NewFlagSet("admin "+args[0], flag.ContinueOnError)
	broker := flags.String("b", "127.0.0.1:10911", "the broker's `address`")
	peer := flags.String("peer", "", "forget: the other broker's `address`")
	to := flags.String("to", "", "switch: the slave's `address`")
	if err := parseFlags(flags, args[1:]); err != nil {
		return err
	}
	client, err := remoting.NewClient(remoting.ClientConfig{})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	order := func(code protocol.RequestCode, body []byte) (*remoting.Response, error) {
		resp, err := client.Call(ctx, *broker, code, nil, nil, body)
		if err != nil {
			return nil, err
		}
		if resp.Code != int32(protocol.Success) {
			return nil, fmt.Errorf("%s answers %s: %s", *broker, protocol.ResponseCode(resp.Code), resp.Remark)
		}
		return resp, nil
	}
	switch args[0] {
	case "replicas":
		resp, err := order(protocol.GetReplicaStatus, nil)
		if err != nil {
			return err
		}
		var s protocol.ReplicaStatus
		if err := protocol.Unmarshal(resp.Body, &s); err != nil {
			return err
		}
		return printReplicas(&s)
	case "open":
		_, err := order(protocol.OpenMaster, nil)
		return err
	case "forget":
		_, err := order(protocol.ForgetPeer, []byte(*peer))
		return err
	case "switch":
		if *to == "" {
			return errors.New("-to is missing: which slave is to be the master?")
		}
		body, err := protocol.Marshal(protocol.SwitchRequest{Slave: *to})
		if err != nil {
			return err
		}
		if _, err = order(protocol.SwitchMaster, body); err == nil {
			fmt.Printf("%s is the master now, %s follows it\n", *to, *broker)
		}
		return err
	}
	return fmt.Errorf("no command %q\n\n%s", args[0], adminUsage)
}

func printReplicas(s *protocol.ReplicaStatus) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("broker", "%s, id %d, %s", s.BrokerName, s.BrokerID, s.Role)
	line("state", "%s since %s", s.State, ms(s.Since))
	if s.Waiting != "" {
		line("waits", "%s", s.Waiting)
	}
	line("log", "from %d to %d, on disk to %d, seen to %d", s.Low, s.End, s.Flushed, s.Shown)
	if n := len(s.Epochs); n > 0 {
		line("epoch", "%d, from %d on", s.Epochs[n-1].Epoch, s.Epochs[n-1].StartOffset)
	}
	if s.Suspect {
		line("suspect", "what was not flushed before a power cut may be missing here")
	}
	if s.Exposed {
		line("exposed", "readers may have seen messages that no slave has")
	}
	for _, g := range s.Gaps {
		line("gap", "from %d to %d, kept free for what was lost there", g.From, g.To)
	}
	for _, d := range s.Damaged {
		line("damaged", "from %d to %d, until a broker of the group comes that has what stood there", d.From, d.To)
	}
	for _, slave := range s.Slaves {
		sync := "in sync"
		if !slave.InSync {
			sync = "does not count"
		}
		line("slave", "%s, has the log to %d, %d bytes behind, %s, heard of %s", slave.Addr, slave.Acked, slave.Behind, sync, ms(slave.Heard))
	}
	if s.Master != nil {
		line("master", "%s (HA %s), has the log to %d: %d bytes, %d ms ahead", s.Master.Addr, s.Master.HAAddr, s.Master.End, s.Master.Behind, s.Master.Lag)
	}
	if len(s.Peers) > 0 {
		line("group", "%s", strings.Join(s.Peers, ", "))
	}
	return w.Flush()
}

func ms(at int64) string { return time.UnixMilli(at).Format("2006-01-02 15:04:05.000") }
