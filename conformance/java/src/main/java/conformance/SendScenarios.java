package conformance;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What a producer may send, and that it arrives as it was sent. */
final class SendScenarios {
    private static final int MESSAGE_ILLEGAL = 13;

    private SendScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("send.sync", SendScenarios::sync);
        all.put("send.async", SendScenarios::async);
        all.put("send.oneway", SendScenarios::oneway);
        all.put("send.batch", SendScenarios::batch);
        all.put("send.properties", SendScenarios::properties);
        all.put("send.big-3.5MB", SendScenarios::big);
        all.put("send.compressed", SendScenarios::compressed);
        all.put("send.too-big-refused", SendScenarios::tooBig);
        all.put("send.delay-level", SendScenarios::delayLevel);
    }

    private static void sync(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        Set<String> keys = new TreeSet<>();
        Map<Integer, Long> next = new HashMap<>();
        for (int i = 0; i < 20; i++) {
            Message m = Env.message(topic, "k" + i);
            SendResult r = Env.ok(env.producer().send(m));
            Check.that(r.getMsgId() != null && r.getOffsetMsgId() != null, "ids missing in %s", r);
            Check.equal("topic of the result", r.getMessageQueue().getTopic(), topic);
            int queue = r.getMessageQueue().getQueueId();
            Check.equal("offset in queue " + queue, r.getQueueOffset(), next.getOrDefault(queue, 0L));
            next.put(queue, r.getQueueOffset() + 1);
            keys.add("k" + i);
        }
        Check.equal("queues used", next.size(), 4);
        inbox.awaitExactly(keys, 40);
        for (MessageExt m : inbox.all()) {
            Check.bodies(m.getKeys(), m.getBody(), ("body of " + m.getKeys()).getBytes(StandardCharsets.UTF_8));
            Check.equal("topic", m.getTopic(), topic);
            Check.equal("reconsume times", m.getReconsumeTimes(), 0);
        }
    }

    private static void async(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        Set<String> keys = new TreeSet<>();
        int n = 20;
        CountDownLatch done = new CountDownLatch(n);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < n; i++) {
            keys.add("k" + i);
            env.producer().send(Env.message(topic, "k" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    try {
                        Env.ok(r);
                    } catch (AssertionError e) {
                        failure.set(e);
                    }
                    done.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    done.countDown();
                }
            });
        }
        Check.that(done.await(20, TimeUnit.SECONDS), "%d callbacks missing", done.getCount());
        Check.that(failure.get() == null, "callback: %s", failure.get());
        inbox.awaitExactly(keys, 40);
    }

    private static void oneway(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        Set<String> keys = new TreeSet<>();
        for (int i = 0; i < 20; i++) {
            keys.add("k" + i);
            env.producer().sendOneway(Env.message(topic, "k" + i));
        }
        inbox.awaitExactly(keys, 40);
    }

    private static void batch(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        List<Message> batch = new ArrayList<>();
        Set<String> keys = new TreeSet<>();
        for (int i = 0; i < 16; i++) {
            Message m = new Message(topic, "tag" + i % 3, "k" + i, Bodies.noise("k" + i, 100 + i));
            m.putUserProperty("n", String.valueOf(i));
            batch.add(m);
            keys.add("k" + i);
        }
        SendResult r = Env.ok(env.producer().send(batch));
        Check.equal("message ids in the result", r.getMsgId().split(",").length, 16);
        Check.equal("offset message ids in the result", r.getOffsetMsgId().split(",").length, 16);
        inbox.awaitExactly(keys, 40);
        for (int i = 0; i < 16; i++) {
            MessageExt m = inbox.byKey("k" + i);
            Check.bodies("k" + i, m.getBody(), Bodies.noise("k" + i, 100 + i));
            Check.equal("tags", m.getTags(), "tag" + i % 3);
            Check.equal("user property", m.getUserProperty("n"), String.valueOf(i));
            Check.equal("queue", m.getQueueId(), r.getMessageQueue().getQueueId());
            Check.equal("queue offset", m.getQueueOffset(), (long) i);
        }
    }

    private static void properties(Env env) throws Exception {
        String topic = env.topic("", 1);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        Map<String, String> want = new HashMap<>();
        want.put("plain", "value");
        want.put("with spaces", " a b ");
        want.put("unicode", "h\u00e9llo \u4e16\u754c \u2713");
        want.put("json", "{\"a\":[1,2],\"b\":\"c=d;e\"}");
        want.put("long", "x".repeat(4000));
        Message m = new Message(topic, "TagX", "key1 key2 key3", "body".getBytes(StandardCharsets.UTF_8));
        want.forEach(m::putUserProperty);
        m.setFlag(0x1234);
        SendResult r = Env.ok(env.producer().send(m));
        MessageExt got = inbox.await(1, 40).get(0);
        Check.equal("keys", got.getKeys(), "key1 key2 key3");
        Check.equal("tags", got.getTags(), "TagX");
        Check.equal("flag", got.getFlag(), 0x1234);
        Check.equal("message id", got.getMsgId(), r.getMsgId());
        Check.equal("queue offset", got.getQueueOffset(), r.getQueueOffset());
        Check.that(Math.abs(System.currentTimeMillis() - got.getStoreTimestamp()) < 60_000, "store time %d",
            got.getStoreTimestamp());
        want.forEach((k, v) -> Check.equal("property " + k, got.getUserProperty(k), v));
    }

    private static void big(Env env) throws Exception {
        String topic = env.topic("", 1);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        byte[] body = Bodies.noise(topic, Bodies.BIG);
        Message m = Env.message(topic, "big");
        m.setBody(body);
        Env.ok(env.producer().send(m));
        Env.ok(env.producer().send(Env.message(topic, "small")));
        inbox.awaitExactly(Set.of("big", "small"), 60);
        Check.bodies("3.5 MiB", inbox.byKey("big").getBody(), body);
    }

    private static void compressed(Env env) throws Exception {
        String topic = env.topic("", 1);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        byte[] body = Bodies.text(topic, 20_000);
        Message m = Env.message(topic, "zip");
        m.setBody(body);
        Env.ok(env.producer().send(m));
        MessageExt got = inbox.await(1, 60).get(0);
        Check.bodies("compressed", got.getBody(), body);
        Check.that(got.getStoreSize() < body.length, "stored uncompressed: %d bytes", got.getStoreSize());
    }

    private static void tooBig(Env env) throws Exception {
        String topic = env.topic("", 1);
        DefaultMQProducer p = env.producer();
        p.setMaxMessageSize(8 << 20);
        Message m = Env.message(topic, "too-big");
        m.setBody(Bodies.noise(topic, 5 << 20));
        Exception e = Check.fails("a body of 5 MiB", () -> p.send(m));
        Check.that(e instanceof MQBrokerException, "the broker must refuse, got %s", e);
        Check.equal("response code", ((MQBrokerException) e).getResponseCode(), MESSAGE_ILLEGAL);
        Check.equal("offset of the next send", Env.ok(p.send(Env.message(topic, "after"))).getQueueOffset(), 0L);
    }

    private static void delayLevel(Env env) throws Exception {
        String topic = env.topic("", 2);
        Inbox inbox = new Inbox();
        Map<String, Long> sent = new HashMap<>();
        Map<String, Long> took = new HashMap<>();
        var c = env.push(env.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            synchronized (took) {
                msgs.forEach(m -> took.put(m.getKeys(), System.currentTimeMillis() - sent.getOrDefault(m.getKeys(), 0L)));
            }
            inbox.addAll(msgs);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        env.start(c);
        Set<String> keys = new TreeSet<>(env.send(topic, "warm-up", 1));
        inbox.awaitExactly(keys, 60);
        for (int level = 1; level <= 2; level++) {
            for (int i = 0; i < 3; i++) {
                Message m = Env.message(topic, "level" + level + "-" + i);
                m.setDelayTimeLevel(level);
                m.putUserProperty("p", "v" + i);
                synchronized (took) {
                    sent.put(m.getKeys(), System.currentTimeMillis());
                }
                Env.ok(env.producer().send(m));
            }
        }
        keys.addAll(sent.keySet());
        inbox.awaitExactly(keys, 60);
        for (MessageExt m : inbox.all().subList(1, 7)) {
            Check.equal("topic", m.getTopic(), topic);
            Check.that(m.getUserProperty("p") != null, "user property lost");
            long want = m.getKeys().startsWith("level1") ? 1000 : 5000;
            long ms = took.get(m.getKeys());
            Check.that(ms >= want - 100, "%s came after %d ms, want at least %d", m.getKeys(), ms, want);
            Check.that(ms < want + 10_000, "%s came only after %d ms, want about %d", m.getKeys(), ms, want);
        }
    }
}
