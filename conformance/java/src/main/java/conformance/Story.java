package conformance;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The stock producer and push consumer of the tests in crash/story_test.go, told what to do line by line:
 * <pre>
 * Story produce NAMESRV TOPIC            SEND prefix count broker,broker | READY prefix broker
 * Story consume NAMESRV TOPIC GROUP      SUSPEND | RESUME
 * both                                   STOP
 * </pre>
 * Each send gives a line "SENT key status broker queue offset", each message consumed "GOT key broker queue offset", each
 * command "DONE" when it is done.
 */
public final class Story {
    private static final int THREADS = 24;

    private Story() {
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) {
            produce(args[1], args[2]);
        } else {
            consume(args[1], args[2], args[3]);
        }
        Runtime.getRuntime().halt(0); // Clients leave threads behind that would keep the process.
    }

    private static BufferedReader commands() {
        return new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    }

    private static void produce(String namesrv, String topic) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("story-producer");
        p.setNamesrvAddr(namesrv);
        p.setVipChannelEnabled(false); // 3.x has no such port
        p.setPollNameServerInterval(1000);
        p.setSendMsgTimeout(10_000);
        p.start();
        ExecutorService senders = Executors.newFixedThreadPool(THREADS);
        BufferedReader in = commands();
        Harness.say("DONE");
        for (String line = in.readLine(); line != null && !line.equals("STOP"); line = in.readLine()) {
            String[] f = line.split(" ");
            if (f[0].equals("READY")) {
                ready(p, topic, f[1], f[2]);
            } else {
                send(p, senders, topic, f[1], Integer.parseInt(f[2]), List.of(f[3].split(",")));
            }
            Harness.say("DONE");
        }
        p.shutdown();
    }

    /** Sends one message after another to the broker until one is SEND_OK: what a caller does who needs that. */
    private static void ready(DefaultMQProducer p, String topic, String prefix, String broker) throws Exception {
        for (int i = 0;; i++) {
            List<MessageQueue> queues = queues(p, topic, List.of(broker));
            if (!queues.isEmpty() && one(p, message(topic, prefix + "-" + i), queues.get(0)) == SendStatus.SEND_OK) {
                return;
            }
            Thread.sleep(200);
        }
    }

    private static List<MessageQueue> queues(DefaultMQProducer p, String topic, List<String> brokers) {
        List<MessageQueue> wanted = new ArrayList<>();
        try {
            for (MessageQueue q : p.fetchPublishMessageQueues(topic)) {
                if (brokers.contains(q.getBrokerName())) {
                    wanted.add(q);
                }
            }
        } catch (Exception e) {
            System.err.println("no route: " + e);
        }
        wanted.sort(null);
        return wanted;
    }

    private static void send(DefaultMQProducer p, ExecutorService senders, String topic, String prefix, int count,
        List<String> brokers) throws Exception {
        List<MessageQueue> queues = queues(p, topic, brokers);
        Check.that(!queues.isEmpty(), "no queues of %s", brokers);
        AtomicInteger next = new AtomicInteger();
        CountDownLatch ended = new CountDownLatch(THREADS);
        for (int t = 0; t < THREADS; t++) {
            senders.execute(() -> {
                for (int i = next.getAndIncrement(); i < count; i = next.getAndIncrement()) {
                    one(p, message(topic, String.format("%s-%06d", prefix, i)), queues.get(i % queues.size()));
                }
                ended.countDown();
            });
        }
        ended.await();
    }

    /** Bodies have many sizes: logs in which all records are of one size hide a stream that goes on in the wrong place. */
    private static Message message(String topic, String key) {
        int size = 100 + Math.floorMod(key.hashCode() * 31, 499);
        return new Message(topic, "story", key, (key + " ").repeat(size / (key.length() + 1) + 1).getBytes(StandardCharsets.UTF_8));
    }

    private static SendStatus one(DefaultMQProducer p, Message m, MessageQueue q) {
        try {
            SendResult r = p.send(m, q);
            Harness.say("SENT " + m.getKeys() + " " + r.getSendStatus() + " " + q.getBrokerName() + " " + q.getQueueId() + " "
                + r.getQueueOffset());
            return r.getSendStatus();
        } catch (Exception e) {
            System.err.println(m.getKeys() + ": " + e);
            Harness.say("SENT " + m.getKeys() + " FAILED " + q.getBrokerName() + " " + q.getQueueId() + " -1");
            return null;
        }
    }

    private static void consume(String namesrv, String topic, String group) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(namesrv);
        c.setVipChannelEnabled(false);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            for (MessageExt m : msgs) {
                Harness.say("GOT " + m.getKeys() + " " + context.getMessageQueue().getBrokerName() + " " + m.getQueueId() + " "
                    + m.getQueueOffset());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        BufferedReader in = commands();
        Harness.say("DONE");
        for (String line = in.readLine(); line != null && !line.equals("STOP"); line = in.readLine()) {
            if (line.equals("SUSPEND")) {
                c.suspend();
            } else {
                c.resume();
            }
            Harness.say("DONE");
        }
        c.shutdown();
        Harness.say("DONE");
    }
}
