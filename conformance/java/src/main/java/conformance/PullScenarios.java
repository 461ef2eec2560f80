package conformance;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull and lite pull consumers, which show the broker's answers as they are. */
final class PullScenarios {
    private PullScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("pull.basic", PullScenarios::basic);
        all.put("pull.long-poll", PullScenarios::longPoll);
        all.put("pull.offset-beyond-max", PullScenarios::beyondMax);
        all.put("litepull.subscribe", PullScenarios::liteSubscribe);
        all.put("litepull.assign-seek", PullScenarios::liteAssignSeek);
    }

    private static void expect(String what, PullResult r, PullStatus status, long next) {
        Check.equal(what, r.getPullStatus(), status);
        Check.equal(what + ": next offset", r.getNextBeginOffset(), next);
    }

    private static void basic(Env env) throws Exception {
        String topic = env.topic("", 1);
        MessageQueue q = env.onlyQueue(topic);
        DefaultMQPullConsumer c = env.pull(env.group(""));
        env.send(topic, "k", 10);
        Check.eventually(10, "the messages can be read", () -> c.maxOffset(q) == 10);

        PullResult r = c.pull(q, "*", 0, 4);
        expect("pull 4 at 0", r, PullStatus.FOUND, 4);
        Check.equal("min offset", r.getMinOffset(), 0L);
        Check.equal("max offset", r.getMaxOffset(), 10L);
        Check.equal("messages", r.getMsgFoundList().size(), 4);
        for (int i = 0; i < 4; i++) {
            MessageExt m = r.getMsgFoundList().get(i);
            Check.equal("key", m.getKeys(), "k" + i);
            Check.equal("queue offset", m.getQueueOffset(), (long) i);
        }
        expect("pull 32 at 4", c.pull(q, "*", 4, 32), PullStatus.FOUND, 10);
        expect("pull with another tag", c.pull(q, "other", 0, 32), PullStatus.NO_MATCHED_MSG, 10);
        expect("pull at the end", c.pull(q, "*", 10, 32), PullStatus.NO_NEW_MSG, 10);
        c.updateConsumeOffset(q, 7);
        c.getOffsetStore().persist(q);
        Check.eventually(10, "the committed offset is 7", () -> c.fetchConsumeOffset(q, true) == 7);
    }

    private static void longPoll(Env env) throws Exception {
        String topic = env.topic("", 1);
        MessageQueue q = env.onlyQueue(topic);
        DefaultMQPullConsumer c = env.pull(env.group(""));
        env.send(topic, "first", 1);
        Check.eventually(10, "the message can be read", () -> c.maxOffset(q) == 1);
        CompletableFuture<Long> back = new CompletableFuture<>();
        CompletableFuture<PullResult> result = CompletableFuture.supplyAsync(() -> {
            try {
                PullResult r = c.pullBlockIfNotFound(q, "*", 1, 32);
                back.complete(System.nanoTime());
                return r;
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        Thread.sleep(2000);
        Check.that(!result.isDone(), "the pull was not held: %s", result);
        long sent = System.nanoTime();
        env.send(topic, "second", 1);
        PullResult r = result.get(20, TimeUnit.SECONDS);
        expect("held pull", r, PullStatus.FOUND, 2);
        long ms = (back.get() - sent) / 1_000_000;
        Check.that(ms < 2500, "the held pull came back only %d ms after the send", ms);
    }

    private static void beyondMax(Env env) throws Exception {
        String topic = env.topic("", 1);
        MessageQueue q = env.onlyQueue(topic);
        DefaultMQPullConsumer c = env.pull(env.group(""));
        env.send(topic, "k", 10);
        Check.eventually(10, "the messages can be read", () -> c.maxOffset(q) == 10);
        for (long offset : new long[] {11, 1000, 1L << 40}) {
            PullResult r = c.pull(q, "*", offset, 32);
            expect("pull at " + offset, r, PullStatus.OFFSET_ILLEGAL, 10);
            Check.equal("max offset", r.getMaxOffset(), 10L);
        }
    }

    private static void pollUntil(DefaultLitePullConsumer c, Inbox inbox, int n) throws Exception {
        Check.eventually(60, n + " messages are polled", () -> {
            inbox.addAll(c.poll(500));
            return inbox.size() >= n;
        });
    }

    private static void liteSubscribe(Env env) throws Exception {
        String topic = env.topic("", 4);
        Set<String> old = env.send(topic, "old", 12);
        DefaultLitePullConsumer c = env.lite(env.group(""));
        c.setAutoCommit(false);
        c.subscribe(topic, "*");
        c.start();
        Inbox inbox = new Inbox();
        pollUntil(c, inbox, 12);
        inbox.awaitExactly(old, 1);
        c.commitSync();
        c.shutdown();

        DefaultLitePullConsumer again = env.lite(env.group(""));
        Set<String> fresh = env.send(topic, "fresh", 8);
        again.subscribe(topic, "*");
        again.start();
        Inbox second = new Inbox();
        pollUntil(again, second, 8);
        second.addAll(again.poll(1000));
        second.awaitExactly(fresh, 1);
    }

    private static void liteAssignSeek(Env env) throws Exception {
        String topic = env.topic("", 2);
        env.send(topic, "k", 20);
        DefaultLitePullConsumer c = env.lite(env.group(""));
        c.setAutoCommit(false);
        c.start();
        Collection<MessageQueue> queues = c.fetchMessageQueues(topic);
        Check.equal("queues", queues.size(), 2);
        List<MessageQueue> sorted = new ArrayList<>(queues);
        sorted.sort(null);
        MessageQueue q = sorted.get(0);
        c.assign(List.of(q));
        pollUntil(c, new Inbox(), 10); // else what the client's first pull brings may come behind the seek
        c.seek(q, 6);
        Inbox inbox = new Inbox();
        pollUntil(c, inbox, 4);
        Set<String> want = new TreeSet<>();
        for (int i = 6; i < 10; i++) {
            want.add("k" + 2 * i);
        }
        inbox.awaitExactly(want, 1);

        c.seekToBegin(q);
        Inbox whole = new Inbox();
        pollUntil(c, whole, 10);
        Check.equal("first after seekToBegin", whole.all().get(0).getQueueOffset(), 0L);
        c.seekToEnd(q);
        Check.equal("poll at the end", c.poll(1500).size(), 0);
        Check.equal("offset of time 0", c.offsetForTimestamp(q, 0L), 0L);
    }
}
