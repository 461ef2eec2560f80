package conformance;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * <pre>
 * Main list
 * Main run NAMESRV CLIENT RUN PARALLEL LIMIT_SECONDS SCENARIO...
 * Main produce NAMESRV CLIENT RUN
 * Main consume NAMESRV CLIENT RUN LIMIT_SECONDS PRODUCER...
 * </pre>
 * Every scenario ends in one line on standard output: RESULT client scenario PASS|FAIL ms reason.
 */
public final class Main {
    private static final Map<String, Scenario> SCENARIOS = new TreeMap<>();

    static {
        SendScenarios.register(SCENARIOS);
        ConsumeScenarios.register(SCENARIOS);
        PullScenarios.register(SCENARIOS);
        OffsetScenarios.register(SCENARIOS);
        TopicScenarios.register(SCENARIOS);
        RestartScenarios.register(SCENARIOS);
        InteropScenarios.register(SCENARIOS);
    }

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        List<String> rest = Arrays.asList(args);
        switch (args[0]) {
            case "list":
                SCENARIOS.keySet().forEach(System.out::println);
                break;
            case "run":
                run(args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]),
                    rest.subList(6, rest.size()));
                break;
            case "produce":
                produce(args[1], args[2], args[3]);
                break;
            case "consume":
                consume(args[1], args[2], args[3], Integer.parseInt(args[4]), rest.subList(5, rest.size()));
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        Runtime.getRuntime().halt(0); // Clients leave threads behind that would keep the process.
    }

    private static ExecutorService daemons() {
        return Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
    }

    private static void run(String namesrv, String client, String run, int parallel, int limit, List<String> names)
        throws Exception {
        ExecutorService runners = Executors.newFixedThreadPool(parallel);
        ExecutorService workers = daemons();
        List<Future<?>> all = new ArrayList<>();
        for (String name : names) {
            all.add(runners.submit(() -> one(new Env(namesrv, client, name, run), workers, limit)));
        }
        for (Future<?> f : all) {
            f.get();
        }
    }

    private static void one(Env env, ExecutorService workers, int limit) {
        long start = System.nanoTime();
        Throwable failure = null;
        Scenario scenario = SCENARIOS.get(env.scenario);
        Future<?> work = workers.submit(() -> {
            Check.that(scenario != null, "no such scenario");
            scenario.run(env);
            return null;
        });
        try {
            work.get(limit, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            work.cancel(true);
            failure = new AssertionError("time limit of " + limit + " s");
        } catch (ExecutionException e) {
            failure = e.getCause();
        } catch (InterruptedException e) {
            failure = e;
        }
        Harness.result(env.client, env.scenario, start, failure);
        Future<?> closing = workers.submit(env::close);
        try {
            closing.get(20, TimeUnit.SECONDS);
        } catch (Exception e) {
            System.err.println(env.scenario + ": closing: " + e);
        }
    }

    private static String pairTopic(String run, String producer) {
        return "cf-" + run + "-pair-" + producer;
    }

    private static void produce(String namesrv, String client, String run) throws Exception {
        String scenario = "pair." + client;
        long start = System.nanoTime();
        Throwable failure = null;
        try (Env env = new Env(namesrv, client, scenario, run)) {
            String topic = pairTopic(run, client);
            DefaultMQProducer p = env.producer();
            Env.createTopic(p, topic, 4);
            Harness.await(client, scenario, "send");
            start = System.nanoTime();
            Pair.produce(p, topic);
        } catch (Throwable e) {
            failure = e;
        }
        Harness.result(client, scenario, start, failure);
    }

    private static void consume(String namesrv, String client, String run, int limit, List<String> producers)
        throws Exception {
        try (Env env = new Env(namesrv, client, "pair", run)) {
            Map<String, Inbox> inboxes = new TreeMap<>();
            for (String producer : producers) {
                Inbox inbox = new Inbox();
                inboxes.put(producer, inbox);
                env.consume(pairTopic(run, producer), env.group("-from-" + producer), inbox);
            }
            Harness.await(client, "pair", "verify");
            long start = System.nanoTime();
            ExecutorService workers = daemons();
            List<Future<?>> all = new ArrayList<>();
            inboxes.forEach((producer, inbox) -> all.add(workers.submit(() -> {
                Throwable failure = null;
                try {
                    Pair.verify(inbox, limit);
                } catch (Throwable e) {
                    failure = e;
                }
                Harness.result(client, "pair." + producer + "-" + client, start, failure);
            })));
            for (Future<?> f : all) {
                f.get();
            }
        }
    }
}
