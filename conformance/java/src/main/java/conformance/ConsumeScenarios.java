package conformance;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers: sharing, ordering, retrying, filtering. */
final class ConsumeScenarios {
    private ConsumeScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("filter.tag", ConsumeScenarios::filterTag);
        all.put("consume.rebalance-2", ConsumeScenarios::rebalance);
        all.put("consume.broadcast", ConsumeScenarios::broadcast);
        all.put("consume.orderly", ConsumeScenarios::orderly);
        all.put("consume.orderly-takeover", ConsumeScenarios::orderlyTakeover);
        all.put("consume.orderly-suspend", ConsumeScenarios::orderlySuspend);
        all.put("consume.two-groups", ConsumeScenarios::twoGroups);
        all.put("consume.retry", ConsumeScenarios::retry);
        all.put("consume.dlq", ConsumeScenarios::dlq);
        all.put("consume.suspend-resume", ConsumeScenarios::suspendResume);
        all.put("consume.batch-size", ConsumeScenarios::batchSize);
    }

    private static void filterTag(Env env) throws Exception {
        String topic = env.topic("", 2);
        Map<String, Set<String>> want = Map.of(
            "A || C", new TreeSet<>(), "B", new TreeSet<>(), "*", new TreeSet<>(), "none", new TreeSet<>());
        Map<String, Inbox> inboxes = new HashMap<>();
        int g = 0;
        for (String expression : want.keySet()) {
            Inbox inbox = new Inbox();
            inboxes.put(expression, inbox);
            DefaultMQPushConsumer c = env.push(env.group(String.valueOf(g++)));
            c.subscribe(topic, expression);
            c.registerMessageListener(inbox.listener());
            env.start(c);
        }
        String[] tags = {"A", "B", "C", "AA", null};
        for (int i = 0; i < 25; i++) {
            String tag = tags[i % tags.length];
            Message m = Env.message(topic, "k" + i);
            m.setTags(tag);
            Env.ok(env.producer().send(m));
            if ("A".equals(tag) || "C".equals(tag)) {
                want.get("A || C").add("k" + i);
            }
            if ("B".equals(tag)) {
                want.get("B").add("k" + i);
            }
            want.get("*").add("k" + i);
        }
        inboxes.get("*").awaitExactly(want.get("*"), 40);
        inboxes.get("A || C").awaitExactly(want.get("A || C"), 40);
        inboxes.get("B").awaitExactly(want.get("B"), 40);
        Check.equal("messages for a tag nobody used", inboxes.get("none").size(), 0);
    }

    /** The queues of the topic that the consumer holds now, asked by sending one message to each. */
    private static Set<Integer> queuesSeen(Inbox inbox, String prefix) {
        Set<Integer> queues = new HashSet<>();
        for (MessageExt m : inbox.all()) {
            if (m.getKeys().startsWith(prefix)) {
                queues.add(m.getQueueId());
            }
        }
        return queues;
    }

    private static void rebalance(Env env) throws Exception {
        int queues = 8;
        String topic = env.topic("", queues);
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer a = env.consume(topic, env.group(""), first);
        Set<String> all = new TreeSet<>(env.send(topic, "alone-", 16));
        first.awaitExactly(all, 40);

        env.consume(topic, env.group(""), second);
        AtomicInteger round = new AtomicInteger();
        Check.eventually(60, "both consumers serve 4 of the 8 queues", () -> {
            String prefix = "round" + round.incrementAndGet() + "-";
            Set<String> keys = env.send(topic, prefix, queues);
            all.addAll(keys);
            Check.eventually(30, "a round is consumed", () -> {
                Set<String> seen = new HashSet<>(first.counts().keySet());
                seen.addAll(second.counts().keySet());
                return seen.containsAll(keys);
            });
            Set<Integer> q1 = queuesSeen(first, prefix);
            Set<Integer> q2 = queuesSeen(second, prefix);
            return q1.size() == queues / 2 && q2.size() == queues / 2;
        });

        a.shutdown();
        Set<String> rest = env.send(topic, "left-", 16);
        all.addAll(rest);
        second.awaitKeys(rest, 60);
        Set<String> seen = new HashSet<>(first.counts().keySet());
        seen.addAll(second.counts().keySet());
        Check.that(seen.containsAll(all), "lost: %d of %d", all.size() - seen.size(), all.size());
    }

    private static void broadcast(Env env) throws Exception {
        String topic = env.topic("", 4);
        List<Inbox> inboxes = List.of(new Inbox(), new Inbox());
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer c = env.push(env.group(""));
            // MessageModel moved between 4.x and 5.x, so its name is not written here.
            c.setMessageModel(Enum.valueOf(c.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            c.subscribe(topic, "*");
            c.registerMessageListener(inbox.listener());
            env.start(c);
        }
        Set<String> keys = env.send(topic, "k", 20);
        for (Inbox inbox : inboxes) {
            inbox.awaitExactly(keys, 40);
        }
    }

    /** Sends n messages to each queue, numbered within the queue. */
    private static Set<String> sendNumbered(Env env, String topic, int from, int to) throws Exception {
        Set<String> keys = new TreeSet<>();
        List<MessageQueue> queues = env.producer().fetchPublishMessageQueues(topic);
        for (int n = from; n < to; n++) {
            for (MessageQueue q : queues) {
                String key = "q" + q.getQueueId() + "-" + n;
                Env.ok(env.producer().send(Env.message(topic, key), (qs, m, arg) -> (MessageQueue) arg, q));
                keys.add(key);
            }
        }
        return keys;
    }

    /** Checks that each queue was seen in strictly rising offset order. */
    private static void inOrder(List<MessageExt> got) {
        Map<Integer, Long> last = new HashMap<>();
        for (MessageExt m : got) {
            long before = last.getOrDefault(m.getQueueId(), -1L);
            Check.that(m.getQueueOffset() > before, "queue %d: offset %d after %d", m.getQueueId(),
                m.getQueueOffset(), before);
            last.put(m.getQueueId(), m.getQueueOffset());
        }
    }

    private static void orderly(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox inbox = new Inbox();
        Map<Integer, AtomicInteger> inside = new ConcurrentHashMap<>();
        AtomicReference<String> overlap = new AtomicReference<>();
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> {
            int queue = ctx.getMessageQueue().getQueueId();
            AtomicInteger n = inside.computeIfAbsent(queue, q -> new AtomicInteger());
            if (n.incrementAndGet() != 1) {
                overlap.set("two calls at once for queue " + queue);
            }
            inbox.addAll(msgs);
            n.decrementAndGet();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        env.start(c);
        Set<String> keys = sendNumbered(env, topic, 0, 25);
        inbox.awaitExactly(keys, 60);
        inOrder(inbox.all());
        Check.equal("overlap", overlap.get(), null);
    }

    private static DefaultMQPushConsumer orderlyInto(Env env, String topic, Inbox inbox) throws Exception {
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> {
            inbox.addAll(msgs);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return env.start(c);
    }

    private static void orderlyTakeover(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer a = orderlyInto(env, topic, first);
        Set<String> before = sendNumbered(env, topic, 0, 5);
        first.awaitExactly(before, 60);
        orderlyInto(env, topic, second);
        a.shutdown();
        Set<String> after = sendNumbered(env, topic, 5, 10);
        second.awaitKeys(after, 90);
        inOrder(first.all());
        inOrder(second.all());
        // A clean shutdown hands over committed offsets: the second consumer repeats nothing.
        for (String key : second.counts().keySet()) {
            Check.that(first.byKey(key) == null, "message %s was consumed by both", key);
        }
    }

    private static void orderlySuspend(Env env) throws Exception {
        String topic = env.topic("", 1);
        List<String> seen = new ArrayList<>();
        Inbox done = new Inbox();
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> {
            String key = msgs.get(0).getKeys();
            synchronized (seen) {
                seen.add(key);
                if (key.equals("k2") && seen.stream().filter(key::equals).count() < 3) {
                    ctx.setSuspendCurrentQueueTimeMillis(300);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
            }
            done.addAll(msgs);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        env.start(c);
        done.awaitExactly(env.send(topic, "k", 6), 60);
        Check.equal("calls", seen, List.of("k0", "k1", "k2", "k2", "k2", "k3", "k4", "k5"));
    }

    private static void twoGroups(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        env.consume(topic, env.group("1"), one);
        env.consume(topic, env.group("2"), two);
        Set<String> keys = env.send(topic, "k", 20);
        one.awaitExactly(keys, 40);
        two.awaitExactly(keys, 40);
    }

    private static void retry(Env env) throws Exception {
        String topic = env.topic("", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            inbox.addAll(msgs);
            ctx.setDelayLevelWhenNextConsume(1);
            return msgs.get(0).getKeys().equals("again") && msgs.get(0).getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        env.start(c);
        Message m = Env.message(topic, "again");
        m.putUserProperty("p", "v");
        String id = Env.ok(env.producer().send(m)).getMsgId();
        Env.ok(env.producer().send(Env.message(topic, "once")));
        List<MessageExt> got = inbox.await(3, 80);
        Thread.sleep(1500);
        Check.equal("deliveries", inbox.counts(), Map.of("again", 2, "once", 1));
        MessageExt again = got.get(got.size() - 1);
        Check.equal("redelivered", again.getKeys(), "again");
        Check.equal("reconsume times", again.getReconsumeTimes(), 1);
        Check.equal("topic", again.getTopic(), topic);
        Check.equal("user property", again.getUserProperty("p"), "v");
        Check.equal("tags", again.getTags(), "tag");
        Check.equal("message id", again.getMsgId(), id);
        Check.bodies("redelivered", again.getBody(), m.getBody());
    }

    private static void dlq(Env env) throws Exception {
        String topic = env.topic("", 1);
        String group = env.group("");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer c = env.push(group);
        c.setMaxReconsumeTimes(1);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            inbox.addAll(msgs);
            ctx.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        env.start(c);
        Message m = Env.message(topic, "poison");
        m.putUserProperty("p", "v");
        Env.ok(env.producer().send(m));

        DefaultMQPullConsumer reader = env.pull(env.group("-reader"));
        Inbox dead = new Inbox();
        Check.eventually(80, "the message is in the dead letter topic", () -> {
            for (MessageQueue q : reader.fetchSubscribeMessageQueues("%DLQ%" + group)) {
                PullResult r = reader.pull(q, "*", 0, 32);
                if (r.getPullStatus() == PullStatus.FOUND) {
                    dead.addAll(r.getMsgFoundList());
                    return true;
                }
            }
            return false;
        });
        Check.equal("deliveries before it is given up", inbox.size(), 2);
        Check.equal("dead letters", dead.size(), 1);
        MessageExt d = dead.all().get(0);
        Check.equal("keys", d.getKeys(), "poison");
        Check.equal("user property", d.getUserProperty("p"), "v");
        Check.bodies("dead letter", d.getBody(), m.getBody());
        Thread.sleep(2000);
        Check.equal("deliveries afterwards", inbox.size(), 2);
    }

    private static void suspendResume(Env env) throws Exception {
        String topic = env.topic("", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer c = env.consume(topic, env.group(""), inbox);
        inbox.awaitExactly(env.send(topic, "before", 4), 40);
        c.suspend();
        // A pull that the broker already holds may still bring one message for each queue.
        env.send(topic, "flush", 2);
        Thread.sleep(2000);
        Set<String> later = env.send(topic, "later", 10);
        Thread.sleep(3000);
        for (String key : later) {
            Check.that(inbox.byKey(key) == null, "message %s was consumed while suspended", key);
        }
        c.resume();
        inbox.awaitKeys(later, 60);
        inbox.counts().forEach((k, n) -> Check.that(n == 1, "message %s arrived %d times", k, n));
        Check.equal("messages", inbox.size(), 16);
    }

    private static void batchSize(Env env) throws Exception {
        String topic = env.topic("", 1);
        Set<String> keys = new TreeSet<>();
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            batch.add(Env.message(topic, "k" + i));
            keys.add("k" + i);
        }
        Env.ok(env.producer().send(batch));
        Inbox inbox = new Inbox();
        AtomicInteger largest = new AtomicInteger();
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.setConsumeMessageBatchMaxSize(8);
        c.setPullBatchSize(32);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            largest.accumulateAndGet(msgs.size(), Math::max);
            inbox.addAll(msgs);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        env.start(c);
        inbox.awaitExactly(keys, 60);
        Check.equal("largest call", largest.get(), 8);
    }
}
