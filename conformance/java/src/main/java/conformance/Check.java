package conformance;

import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.Callable;

/** Assertions whose message is the reason printed on the RESULT line. */
final class Check {
    private Check() {
    }

    static void that(boolean ok, String format, Object... args) {
        if (!ok) {
            throw new AssertionError(String.format(format, args));
        }
    }

    static void equal(String what, Object got, Object want) {
        that(Objects.equals(got, want), "%s: got %s, want %s", what, got, want);
    }

    static void bodies(String what, byte[] got, byte[] want) {
        that(Arrays.equals(got, want), "%s: bodies differ (got %d bytes, want %d)", what,
            got == null ? -1 : got.length, want.length);
    }

    /** Waits until the condition holds; an exception counts as "not yet". */
    static void eventually(int seconds, String what, Callable<Boolean> condition) throws InterruptedException {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        String last = "";
        while (System.nanoTime() < end) {
            try {
                if (condition.call()) {
                    return;
                }
                last = "";
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = " (" + e + ")";
            }
            Thread.sleep(100);
        }
        throw new AssertionError("not within " + seconds + " s: " + what + last);
    }

    interface Action {
        void run() throws Exception;
    }

    /** The exception that the action must throw. */
    static Exception fails(String what, Action action) {
        try {
            action.run();
        } catch (Exception e) {
            return e;
        }
        throw new AssertionError(what + ": no exception");
    }
}
