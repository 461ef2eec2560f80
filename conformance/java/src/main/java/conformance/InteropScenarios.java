package conformance;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What a folder is filled with that it takes a real client for. It runs once under each owner of the folder. */
final class InteropScenarios {
    private InteropScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("interop.fill", InteropScenarios::fill);
    }

    private static void fill(Env env) throws Exception {
        String mark = Long.toString(System.currentTimeMillis(), 36) + "-";
        send(env, mark);
        consume(env, mark);
    }

    private static void send(Env env, String mark) throws Exception {
        String topic = env.topic("", 4);
        DefaultMQProducer p = env.producer();
        for (int i = 0; i < 12; i++) {
            Env.ok(p.send(message(topic, mark + i, Bodies.noise(mark + i, 1000 * i + 1))));
        }
        Env.ok(p.send(message(topic, mark + "zip", Bodies.text(mark, 20_000))));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            batch.add(message(topic, mark + "batch" + i, Bodies.noise(mark + i, 500)));
        }
        Env.ok(p.send(batch));
    }

    private static Message message(String topic, String key, byte[] body) {
        Message m = new Message(topic, "tag-" + body.length % 3, key + " second-" + key, body);
        m.putUserProperty("unicode", "h\u00e9llo \u4e16\u754c " + key);
        return m;
    }

    /** One group for all owners: it goes on where it was, and what it gives back waits in the folder. */
    private static void consume(Env env, String mark) throws Exception {
        String topic = env.topic("-back", 1);
        Set<String> keys = new TreeSet<>(env.send(topic, mark + "ok", 5));
        for (String key : List.of("again", "later", "dead")) {
            Env.ok(env.producer().send(Env.message(topic, mark + key)));
            keys.add(mark + key);
        }
        Inbox inbox = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer c = env.push(env.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            MessageExt m = msgs.get(0);
            if (m.getReconsumeTimes() > 0) {
                second.add(m);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            inbox.add(m);
            String kind = m.getKeys().substring(m.getKeys().lastIndexOf('-') + 1);
            switch (kind) {
                case "again":
                    ctx.setDelayLevelWhenNextConsume(1);
                    break;
                case "later":
                    ctx.setDelayLevelWhenNextConsume(18); // 2 h: nobody here lives to see it
                    break;
                case "dead":
                    ctx.setDelayLevelWhenNextConsume(-1); // to the dead letters at once
                    break;
                default:
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        env.start(c);
        inbox.awaitExactly(keys, 60);
        second.awaitExactly(Set.of(mark + "again"), 60);
        c.shutdown();
    }
}
