package conformance;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** One run of one scenario: names that nothing else shares, and all that it opened. */
final class Env implements AutoCloseable {
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    final String namesrv;
    final String client;
    final String scenario;
    private final String run;
    private final Deque<Runnable> opened = new ArrayDeque<>();
    private DefaultMQProducer producer;
    private boolean closed;

    Env(String namesrv, String client, String scenario, String run) {
        this.namesrv = namesrv;
        this.client = client;
        this.scenario = scenario;
        this.run = run;
    }

    String name(String suffix) {
        return ("cf-" + run + "-" + client + "-" + scenario + suffix).replace('.', '_');
    }

    String group(String suffix) {
        return name("-g" + suffix);
    }

    /** Gives every client object an instance of its own: its own connections and client id. */
    <C extends ClientConfig> C configured(C config) {
        config.setNamesrvAddr(namesrv);
        config.setInstanceName(client + "-" + scenario + "-" + INSTANCES.incrementAndGet());
        return config;
    }

    synchronized void onClose(Runnable r) {
        if (closed) {
            throw new IllegalStateException("scenario is over");
        }
        opened.push(r);
    }

    DefaultMQProducer newProducer() throws Exception {
        DefaultMQProducer p = configured(new DefaultMQProducer(group("-producer")));
        p.setSendMsgTimeout(10_000);
        p.start();
        onClose(p::shutdown);
        return p;
    }

    synchronized DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = newProducer();
        }
        return producer;
    }

    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer c = configured(new DefaultMQPushConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(4);
        c.setConsumeThreadMax(4);
        return c;
    }

    <C extends DefaultMQPushConsumer> C start(C c) throws Exception {
        c.start();
        onClose(c::shutdown);
        return c;
    }

    /** A started push consumer of the whole topic that reads from the first message. */
    DefaultMQPushConsumer consume(String topic, String group, Inbox inbox) throws Exception {
        DefaultMQPushConsumer c = push(group);
        c.subscribe(topic, MessageSelector.byTag("*"));
        c.registerMessageListener(inbox.listener());
        return start(c);
    }

    DefaultMQPullConsumer pull(String group) throws Exception {
        DefaultMQPullConsumer c = configured(new DefaultMQPullConsumer(group));
        c.start();
        onClose(c::shutdown);
        return c;
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer c = configured(new DefaultLitePullConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        onClose(c::shutdown);
        return c;
    }

    DefaultMQAdminExt admin() throws Exception {
        DefaultMQAdminExt a = configured(new DefaultMQAdminExt());
        a.setAdminExtGroup(group("-admin"));
        a.start();
        onClose(a::shutdown);
        return a;
    }

    /** Creates a topic of this scenario and waits until the name server routes to it. */
    String topic(String suffix, int queues) throws Exception {
        String topic = name(suffix);
        createTopic(producer(), topic, queues);
        return topic;
    }

    static void createTopic(DefaultMQProducer p, String topic, int queues) throws Exception {
        Check.eventually(30, "topic " + topic + " created", () -> {
            callCreateTopic(p, topic, queues);
            return true;
        });
        Check.eventually(30, "a route to " + topic,
            () -> p.fetchPublishMessageQueues(topic).size() == queues);
    }

    /** createTopic lost one signature and won another between 4.x and 5.x. */
    private static void callCreateTopic(DefaultMQProducer p, String topic, int queues) throws Exception {
        for (Method m : DefaultMQProducer.class.getMethods()) {
            Class<?>[] types = m.getParameterTypes();
            if (!m.getName().equals("createTopic")) {
                continue;
            }
            try {
                if (types.length == 3) {
                    m.invoke(p, "TBW102", topic, queues);
                    return;
                }
                if (types.length == 4 && types[3] == Map.class) {
                    m.invoke(p, "TBW102", topic, queues, new HashMap<String, String>());
                    return;
                }
            } catch (InvocationTargetException e) {
                throw (Exception) e.getCause();
            }
        }
        throw new NoSuchMethodException("createTopic");
    }

    MessageQueue onlyQueue(String topic) throws Exception {
        List<MessageQueue> queues = producer().fetchPublishMessageQueues(topic);
        Check.equal("queues of " + topic, queues.size(), 1);
        return queues.get(0);
    }

    static Message message(String topic, String key) {
        return new Message(topic, "tag", key, ("body of " + key).getBytes(StandardCharsets.UTF_8));
    }

    static SendResult ok(SendResult r) {
        Check.equal("send status", r.getSendStatus(), SendStatus.SEND_OK);
        return r;
    }

    /** Sends n messages with keys prefix0, prefix1, ... round robin over the queues; returns the keys. */
    Set<String> send(String topic, String prefix, int n) throws Exception {
        Set<String> keys = new TreeSet<>();
        List<MessageQueue> queues = new ArrayList<>(producer().fetchPublishMessageQueues(topic));
        queues.sort(null);
        for (int i = 0; i < n; i++) {
            String key = prefix + i;
            ok(producer().send(message(topic, key), queues.get(i % queues.size())));
            keys.add(key);
        }
        return keys;
    }

    @Override
    public void close() {
        while (true) {
            Runnable r;
            synchronized (this) {
                closed = true;
                r = opened.poll();
            }
            if (r == null) {
                return;
            }
            try {
                r.run();
            } catch (RuntimeException e) {
                System.err.println(scenario + ": closing: " + e);
            }
        }
    }
}
