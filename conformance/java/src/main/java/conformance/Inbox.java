package conformance;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** Everything a consumer was handed, in order of arrival. Messages are told apart by their KEYS. */
final class Inbox {
    private final List<MessageExt> got = new ArrayList<>();

    MessageListenerConcurrently listener() {
        return (msgs, ctx) -> {
            addAll(msgs);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    synchronized void addAll(List<MessageExt> msgs) {
        got.addAll(msgs);
        notifyAll();
    }

    synchronized void add(MessageExt msg) {
        got.add(msg);
        notifyAll();
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(got);
    }

    synchronized int size() {
        return got.size();
    }

    synchronized Map<String, Integer> counts() {
        Map<String, Integer> counts = new HashMap<>();
        for (MessageExt m : got) {
            counts.merge(String.valueOf(m.getKeys()), 1, Integer::sum);
        }
        return counts;
    }

    synchronized MessageExt byKey(String key) {
        for (MessageExt m : got) {
            if (key.equals(m.getKeys())) {
                return m;
            }
        }
        return null;
    }

    /** Waits for at least n messages. */
    synchronized List<MessageExt> await(int n, int seconds) throws InterruptedException {
        long end = System.currentTimeMillis() + seconds * 1000L;
        while (got.size() < n) {
            long left = end - System.currentTimeMillis();
            Check.that(left > 0, "got %d of %d messages within %d s", got.size(), n, seconds);
            wait(left);
        }
        return all();
    }

    /** Waits until every key has arrived at least once. */
    synchronized void awaitKeys(Collection<String> keys, int seconds) throws InterruptedException {
        long end = System.currentTimeMillis() + seconds * 1000L;
        while (!counts().keySet().containsAll(keys)) {
            long left = end - System.currentTimeMillis();
            if (left <= 0) {
                TreeSet<String> missing = new TreeSet<>(keys);
                missing.removeAll(counts().keySet());
                Check.that(false, "%d of %d messages missing after %d s: %s", missing.size(), keys.size(), seconds,
                    shortened(missing));
            }
            wait(left);
        }
    }

    /** Waits for every key, then a moment more: each exactly once and nothing else. */
    void awaitExactly(Collection<String> keys, int seconds) throws InterruptedException {
        awaitKeys(keys, seconds);
        Thread.sleep(500);
        Map<String, Integer> counts = counts();
        for (Map.Entry<String, Integer> e : counts.entrySet()) {
            Check.that(keys.contains(e.getKey()), "unexpected message %s", e.getKey());
            Check.that(e.getValue() == 1, "message %s arrived %d times", e.getKey(), e.getValue());
        }
    }

    private static String shortened(TreeSet<String> keys) {
        String s = keys.toString();
        return s.length() > 120 ? s.substring(0, 120) + "..." : s;
    }
}
