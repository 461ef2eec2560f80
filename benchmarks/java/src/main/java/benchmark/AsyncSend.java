package benchmark;

import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends asynchronously with a bounded number in flight: NAMESERVER TOPIC SIZE WINDOW WARM-MS MEASURED-MS. Prints what was
 * acknowledged in the measured time, what failed in all, and the nanoseconds measured.
 */
public final class AsyncSend {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int window = Integer.parseInt(args[3]);
        long warm = Long.parseLong(args[4]) * 1_000_000;
        long measured = Long.parseLong(args[5]) * 1_000_000;
        DefaultMQProducer producer = new DefaultMQProducer("benchmark_java_producer");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        byte[] body = new byte[Integer.parseInt(args[2])];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i * 7);
        }
        Semaphore slots = new Semaphore(window);
        LongAdder acknowledged = new LongAdder();
        LongAdder failed = new LongAdder();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                (result.getSendStatus() == SendStatus.SEND_OK ? acknowledged : failed).increment();
                slots.release();
            }

            @Override
            public void onException(Throwable e) {
                failed.increment();
                slots.release();
            }
        };
        long begin = System.nanoTime();
        long from = 0;
        long before = 0;
        for (long n = 0; ; n++) {
            slots.acquire();
            producer.send(new Message(topic, "TagA", body), callback);
            if ((n & 63) == 0) {
                long now = System.nanoTime();
                if (from == 0 && now - begin >= warm) {
                    from = now;
                    before = acknowledged.sum();
                    System.out.println("MEASURING");
                    System.out.flush();
                } else if (from != 0 && now - from >= measured) {
                    break;
                }
            }
        }
        long count = acknowledged.sum() - before;
        long took = System.nanoTime() - from;
        slots.acquire(window);
        System.out.println("RESULT " + count + " " + failed.sum() + " " + took + " " + acknowledged.sum());
        producer.shutdown();
    }
}
