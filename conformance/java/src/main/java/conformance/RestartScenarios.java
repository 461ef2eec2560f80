package conformance;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The broker goes away and comes back while a consumer is at work and another one is stopped. */
final class RestartScenarios {
    private RestartScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("offset.broker-restart", RestartScenarios::across);
        all.put("offset.broker-kill", RestartScenarios::across);
    }

    private static void across(Env env) throws Exception {
        String topic = env.topic("", 4);
        Inbox live = new Inbox();
        Inbox stopped = new Inbox();
        env.consume(topic, env.group("-live"), live);
        DefaultMQPushConsumer c = env.consume(topic, env.group("-stopped"), stopped);
        Set<String> keys = new TreeSet<>(env.send(topic, "before", 40));
        live.awaitExactly(keys, 60);
        stopped.awaitExactly(keys, 60);
        c.shutdown();

        Harness.await(env.client, env.scenario, "restarted");

        Set<String> fresh = new TreeSet<>();
        List<MessageQueue> queues = new ArrayList<>();
        DefaultMQProducer p = env.producer();
        Check.eventually(60, "the route is back", () -> {
            queues.clear();
            queues.addAll(p.fetchPublishMessageQueues(topic));
            return queues.size() == 4;
        });
        for (int i = 0; i < 40; i++) {
            String key = "after" + i;
            MessageQueue q = queues.get(i % 4);
            Check.eventually(60, "a send succeeds again", () -> {
                Env.ok(p.send(Env.message(topic, key), q));
                return true;
            });
            fresh.add(key);
        }
        keys.addAll(fresh);
        live.awaitKeys(keys, 90);
        Inbox again = new Inbox();
        env.consume(topic, env.group("-stopped"), again);
        again.awaitKeys(fresh, 90);
        Thread.sleep(3000);
        once("the consumer that lived through it", live, keys);
        once("the consumer started afterwards", again, fresh);
        for (MessageQueue q : queues) {
            Check.equal("end of queue " + q.getQueueId(), p.getDefaultMQProducerImpl().maxOffset(q), 20L);
        }
    }

    /** Every wanted message came, none came twice and no other came. */
    private static void once(String who, Inbox inbox, Set<String> want) {
        Set<String> places = new HashSet<>();
        for (MessageExt m : inbox.all()) {
            Check.that(want.contains(m.getKeys()), "%s was given %s again", who, m.getKeys());
            Check.that(places.add(m.getQueueId() + "/" + m.getQueueOffset()), "%s was given %s twice", who,
                m.getKeys());
        }
        Check.equal(who + ": messages", inbox.counts().keySet(), want);
    }
}
