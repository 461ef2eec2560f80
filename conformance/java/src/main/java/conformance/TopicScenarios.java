package conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Topics coming and going, and what an administrator sees. */
final class TopicScenarios {
    private static final int TOPIC_NOT_EXIST = 17;

    private TopicScenarios() {
    }

    static void register(Map<String, Scenario> all) {
        all.put("topic.auto-create", TopicScenarios::autoCreate);
        all.put("topic.unknown", TopicScenarios::unknown);
        all.put("topic.create", TopicScenarios::create);
        all.put("admin.topic-delete", TopicScenarios::delete);
        all.put("admin.consumer-connection", TopicScenarios::consumerConnection);
    }

    private static void autoCreate(Env env) throws Exception {
        String topic = env.name("");
        DefaultMQProducer p = env.producer();
        Env.ok(p.send(Env.message(topic, "k0")));
        Check.eventually(20, "a route to 4 queues", () -> p.fetchPublishMessageQueues(topic).size() == 4);
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        Env.ok(p.send(Env.message(topic, "k1")));
        inbox.awaitExactly(Set.of("k0", "k1"), 60);
    }

    private static void unknown(Env env) throws Exception {
        String topic = env.name("");
        Check.that(Check.fails("queues to publish to", () -> env.producer().fetchPublishMessageQueues(topic))
            instanceof MQClientException, "not a client exception");
        DefaultMQPullConsumer c = env.pull(env.group(""));
        Check.that(Check.fails("queues to subscribe to", () -> c.fetchSubscribeMessageQueues(topic))
            instanceof MQClientException, "not a client exception");
        DefaultMQProducer p = env.configured(new DefaultMQProducer(env.group("-strict")));
        p.setCreateTopicKey(env.name("-no-template"));
        p.start();
        env.onClose(p::shutdown);
        Exception e = Check.fails("a send without a route", () -> p.send(Env.message(topic, "k")));
        // 4.x asks for the route of its template; 5.x always asks for TBW102 and lets the broker refuse.
        Check.that(e instanceof MQClientException && (e.getMessage().contains("No route info")
            || ((MQClientException) e).getResponseCode() == TOPIC_NOT_EXIST), "unexpected: %s", e);
    }

    private static void create(Env env) throws Exception {
        String topic = env.topic("", 3);
        DefaultMQPullConsumer c = env.pull(env.group("-pull"));
        Set<Integer> ids = new TreeSet<>();
        for (MessageQueue q : c.fetchSubscribeMessageQueues(topic)) {
            ids.add(q.getQueueId());
            Check.equal("min offset", c.minOffset(q), 0L);
            Check.equal("max offset", c.maxOffset(q), 0L);
        }
        Check.equal("queue ids", ids, Set.of(0, 1, 2));
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        inbox.awaitExactly(env.send(topic, "k", 6), 60);
    }

    private static String brokerOf(DefaultMQAdminExt admin, String topic) throws Exception {
        return admin.examineTopicRouteInfo(topic).getBrokerDatas().get(0).selectBrokerAddr();
    }

    /** 4.x has no method without the cluster name, its last argument. */
    private static void deleteInNameServer(DefaultMQAdminExt admin, String namesrv, String topic) throws Exception {
        String name = "deleteTopicInNameServer";
        try {
            DefaultMQAdminExt.class.getMethod(name, Set.class, String.class).invoke(admin, Set.of(namesrv), topic);
        } catch (NoSuchMethodException e) {
            DefaultMQAdminExt.class.getMethod(name, Set.class, String.class, String.class)
                .invoke(admin, Set.of(namesrv), topic, null);
        }
    }

    private static void delete(Env env) throws Exception {
        String topic = env.topic("", 2);
        env.send(topic, "k", 4);
        DefaultMQAdminExt admin = env.admin();
        String broker = brokerOf(admin, topic);
        Check.that(admin.fetchAllTopicList().getTopicList().contains(topic), "the topic is not listed");
        admin.deleteTopicInBroker(Set.of(broker), topic);
        deleteInNameServer(admin, env.namesrv, topic);
        Check.eventually(20, "the route is gone", () -> {
            try {
                env.producer().fetchPublishMessageQueues(topic);
                return false;
            } catch (MQClientException e) {
                return true;
            }
        });
        Check.that(!admin.fetchAllTopicList().getTopicList().contains(topic), "the topic is still listed");

        // Made again, it starts empty.
        Env.createTopic(env.producer(), topic, 2);
        Check.eventually(20, "the new topic is empty", () -> {
            for (MessageQueue q : env.producer().fetchPublishMessageQueues(topic)) {
                if (admin.maxOffset(q) != 0) {
                    return false;
                }
            }
            return true;
        });
        Inbox inbox = new Inbox();
        env.consume(topic, env.group(""), inbox);
        inbox.awaitExactly(env.send(topic, "again", 4), 60);
    }

    private static void consumerConnection(Env env) throws Exception {
        String topic = env.topic("", 2);
        String group = env.group("");
        Inbox inbox = new Inbox();
        var consumer = env.consume(topic, group, inbox);
        inbox.awaitExactly(env.send(topic, "k", 4), 40);
        DefaultMQAdminExt admin = env.admin();
        Check.eventually(20, "the group's connection is shown", () -> {
            try {
                var connection = admin.examineConsumerConnectionInfo(group);
                Check.equal("connections", connection.getConnectionSet().size(), 1);
                Check.equal("client id", connection.getConnectionSet().iterator().next().getClientId(),
                    consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId());
                Check.that(connection.getSubscriptionTable().containsKey(topic), "the subscription is missing");
                Check.equal("model", String.valueOf(connection.getMessageModel()), "CLUSTERING");
                return true;
            } catch (MQBrokerException e) {
                return false;
            }
        });
        List<String> groups = List.copyOf(admin.queryTopicConsumeByWho(topic).getGroupList());
        Check.that(groups.contains(group), "groups of the topic: %s", groups);
        Check.eventually(20, "no lag", () -> admin.examineConsumeStats(group).computeTotalDiff() == 0);
    }
}
