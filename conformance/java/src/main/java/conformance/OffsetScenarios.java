package conformance;

import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where consumers start, how they go on, and how single messages are found again. */
final class OffsetScenarios {
    private OffsetScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("from.first", OffsetScenarios::fromFirst);
        all.put("from.last", OffsetScenarios::fromLast);
        all.put("from.last-new-topic", OffsetScenarios::fromLastNewTopic);
        all.put("from.timestamp", OffsetScenarios::fromTimestamp);
        all.put("offset.search", OffsetScenarios::search);
        all.put("offset.persist-restart", OffsetScenarios::persistRestart);
        all.put("query.key-and-id", OffsetScenarios::queryKeyAndId);
        all.put("query.unique-id", OffsetScenarios::queryUniqueId);
    }

    private static void fromFirst(Env env) throws Exception {
        String topic = env.topic("", 4);
        Set<String> keys = env.send(topic, "old", 12);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        inbox.awaitKeys(keys, 60);
        keys.addAll(env.send(topic, "new", 8));
        inbox.awaitExactly(keys, 40);
    }

    private static DefaultMQPushConsumer from(Env env, String topic, ConsumeFromWhere where, Inbox inbox)
        throws Exception {
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.setConsumeFromWhere(where);
        c.subscribe(topic, "*");
        c.registerMessageListener(inbox.listener());
        return c;
    }

    /** Waits until the group is at work on every queue, which a message for each of them shows. */
    private static Set<String> untilAtWork(Env env, String topic, Inbox inbox, int queues) throws Exception {
        Set<String> sent = new TreeSet<>();
        int[] round = {0};
        Check.eventually(60, "every queue is consumed", () -> {
            Set<String> probe = env.send(topic, "probe" + round[0]++ + "-", queues);
            sent.addAll(probe);
            Thread.sleep(1000);
            return inbox.counts().keySet().containsAll(probe);
        });
        return sent;
    }

    /** A new group that asks for the last offset must not see the 12 messages sent before. */
    private static void fromLast(Env env) throws Exception {
        String topic = env.topic("", 4);
        env.send(topic, "old", 12);
        Inbox inbox = new Inbox();
        env.start(from(env, topic, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, inbox));
        untilAtWork(env, topic, inbox, 4);
        for (MessageExt m : inbox.all()) {
            Check.that(!m.getKeys().startsWith("old"), "a group from the last offset was given message %s", m.getKeys());
        }
    }

    /** On a queue that still starts at 0 Java gives even a group from the last offset the first message. */
    private static void fromLastNewTopic(Env env) throws Exception {
        String topic = env.topic("", 4);
        Set<String> keys = env.send(topic, "old", 12);
        Inbox inbox = new Inbox();
        env.start(from(env, topic, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, inbox));
        inbox.awaitKeys(keys, 60);
        keys.addAll(env.send(topic, "new", 8));
        inbox.awaitExactly(keys, 40);
    }

    private static void fromTimestamp(Env env) throws Exception {
        String topic = env.topic("", 2);
        env.send(topic, "old", 6);
        Thread.sleep(3000);
        String when = new SimpleDateFormat("yyyyMMddHHmmss").format(new Date());
        Thread.sleep(1000);
        Set<String> keys = env.send(topic, "new", 6);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer c = from(env, topic, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, inbox);
        c.setConsumeTimestamp(when);
        env.start(c);
        inbox.awaitExactly(keys, 60);
    }

    private static void search(Env env) throws Exception {
        String topic = env.topic("", 1);
        MessageQueue q = env.onlyQueue(topic);
        DefaultMQPullConsumer c = env.pull(env.group(""));
        long before = System.currentTimeMillis();
        Thread.sleep(300);
        env.send(topic, "early", 5);
        Thread.sleep(300);
        long middle = System.currentTimeMillis();
        Thread.sleep(300);
        env.send(topic, "late", 5);
        Check.eventually(10, "the messages can be read", () -> c.maxOffset(q) == 10);
        Check.equal("min offset", c.minOffset(q), 0L);
        Check.equal("offset before the first", c.searchOffset(q, before), 0L);
        Check.equal("offset between", c.searchOffset(q, middle), 5L);
        Check.equal("offset in future", c.searchOffset(q, System.currentTimeMillis() + 60_000), 10L);
        long earliest = c.earliestMsgStoreTime(q);
        Check.that(earliest >= before && earliest <= middle, "earliest store time %d not in %d..%d", earliest, before,
            middle);
    }

    private static void persistRestart(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox first = new Inbox();
        DefaultMQPushConsumer c = env.consume(topic, env.group(""), first);
        first.awaitExactly(env.send(topic, "a", 20), 40);
        c.shutdown();
        Set<String> away = env.send(topic, "b", 10);
        Inbox second = new Inbox();
        env.consume(topic, env.group(""), second);
        second.awaitExactly(away, 60);
    }

    private static void queryKeyAndId(Env env) throws Exception {
        String topic = env.topic("", 2);
        long begin = System.currentTimeMillis() - 60_000;
        Message m = new Message(topic, "tag", "key-one key-two", Bodies.noise(topic, 300));
        m.putUserProperty("p", "v");
        SendResult sent = Env.ok(env.producer().send(m));
        env.send(topic, "other", 4);
        for (String key : List.of("key-one", "key-two")) {
            MessageExt[] found = new MessageExt[1];
            Check.eventually(20, "query by " + key, () -> {
                QueryResult r = env.producer().queryMessage(topic, key, 10, begin, System.currentTimeMillis() + 60_000);
                Check.equal("messages with " + key, r.getMessageList().size(), 1);
                found[0] = r.getMessageList().get(0);
                return true;
            });
            Check.bodies(key, found[0].getBody(), m.getBody());
            Check.equal("message id", found[0].getMsgId(), sent.getMsgId());
        }
        MessageExt byId = env.producer().viewMessage(topic, sent.getOffsetMsgId());
        Check.bodies("by offset id", byId.getBody(), m.getBody());
        Check.equal("topic", byId.getTopic(), topic);
        Check.equal("user property", byId.getUserProperty("p"), "v");
        Check.equal("queue offset", byId.getQueueOffset(), sent.getQueueOffset());
        Check.fails("a key nobody used", () -> {
            QueryResult r = env.producer().queryMessage(topic, "no-such-key", 10, begin,
                System.currentTimeMillis() + 60_000);
            if (r.getMessageList().isEmpty()) {
                throw new IllegalStateException("none");
            }
        });
    }

    private static void queryUniqueId(Env env) throws Exception {
        String topic = env.topic("", 2);
        Message m = Env.message(topic, "unique");
        SendResult sent = Env.ok(env.producer().send(m));
        MessageExt[] found = new MessageExt[1];
        Check.eventually(20, "query by unique id", () -> {
            found[0] = env.producer().viewMessage(topic, sent.getMsgId());
            return found[0] != null;
        });
        Check.bodies("by unique id", found[0].getBody(), m.getBody());
        Check.equal("message id", found[0].getMsgId(), sent.getMsgId());
    }
}
