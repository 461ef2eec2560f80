package conformance;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The two halves of pair.producer-consumer. Both sides work from one list of messages, computed alike by
 * the Java and the Go program: an id decides how a message is sent, its body and its properties.
 */
final class Pair {
    /** Properties that clients and brokers add by themselves. */
    private static final Set<String> SYSTEM = Set.of("KEYS", "TAGS", "WAIT", "UNIQ_KEY", "CLUSTER", "MIN_OFFSET",
        "MAX_OFFSET", "MSG_REGION", "TRACE_ON", "CONSUME_START_TIME", "__CRC32#");

    private Pair() {
    }

    static List<String> ids() {
        List<String> ids = new ArrayList<>();
        for (String kind : List.of("sync", "async", "oneway", "batch")) {
            for (int i = 0; i < 10; i++) {
                ids.add(kind + "-" + i);
            }
        }
        ids.add("big");
        ids.add("zip");
        return ids;
    }

    static byte[] body(String id) {
        switch (id) {
            case "big":
                return Bodies.noise(id, Bodies.BIG);
            case "zip":
                return Bodies.text(id, 20_000);
            default:
                return Bodies.noise(id, 50 + 37 * (id.charAt(id.length() - 1) - '0'));
        }
    }

    static String tags(String id) {
        return "tag-" + id.split("-")[0];
    }

    static String keys(String id) {
        return "key-" + id + " second-" + id;
    }

    static Map<String, String> properties(String id) {
        Map<String, String> p = new LinkedHashMap<>();
        p.put("id", id);
        p.put("unicode", "h\u00e9llo \u4e16\u754c \u2713 " + id);
        p.put("spaces", " a b ");
        p.put("json", "{\"n\":[1,2],\"s\":\"x=y;z\"}");
        p.put("long", "0123456789".repeat(100));
        return p;
    }

    private static Message message(String topic, String id) {
        Message m = new Message(topic, tags(id), keys(id), body(id));
        properties(id).forEach(m::putUserProperty);
        return m;
    }

    /** Sends every message of the list the way its id asks for. */
    static void produce(DefaultMQProducer p, String topic) throws Exception {
        List<Message> batch = new ArrayList<>();
        CountDownLatch async = new CountDownLatch(10);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (String id : ids()) {
            Message m = message(topic, id);
            switch (id.split("-")[0]) {
                case "async":
                    p.send(m, new SendCallback() {
                        @Override
                        public void onSuccess(SendResult r) {
                            async.countDown();
                        }

                        @Override
                        public void onException(Throwable e) {
                            failure.set(e);
                            async.countDown();
                        }
                    });
                    break;
                case "oneway":
                    p.sendOneway(m);
                    break;
                case "batch":
                    batch.add(m);
                    break;
                default:
                    Env.ok(p.send(m));
            }
        }
        Env.ok(p.send(batch));
        Check.that(async.await(30, TimeUnit.SECONDS), "%d async callbacks missing", async.getCount());
        Check.that(failure.get() == null, "async: %s", failure.get());
    }

    /** Waits for the whole list and compares every message with it. */
    static void verify(Inbox inbox, int seconds) throws Exception {
        List<String> ids = ids();
        inbox.await(ids.size(), seconds);
        Thread.sleep(1000);
        Map<String, MessageExt> got = new TreeMap<>();
        for (MessageExt m : inbox.all()) {
            String id = m.getUserProperty("id");
            Check.that(id != null, "a message without its id property: %s", m.getProperties());
            Check.that(got.put(id, m) == null, "%s arrived twice", id);
        }
        Check.equal("ids", got.keySet(), new TreeSet<>(ids));
        for (String id : ids) {
            MessageExt m = got.get(id);
            Check.bodies(id, m.getBody(), body(id));
            Check.equal(id + ": keys", m.getKeys(), keys(id));
            Check.equal(id + ": tags", m.getTags(), tags(id));
            Map<String, String> user = new TreeMap<>(m.getProperties());
            user.keySet().removeAll(SYSTEM);
            Check.equal(id + ": properties", user, new TreeMap<>(properties(id)));
            // Java puts its address into the id: 4 bytes or, where it has no other, 16.
            Check.that(List.of(32, 56).contains(m.getMsgId().length()), "%s: message id %s", id, m.getMsgId());
        }
        MessageExt zip = got.get("zip");
        Check.that(zip.getStoreSize() < 10_000, "zip was not stored compressed: %d bytes", zip.getStoreSize());
    }
}
