package conformance;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;

/** Talk with the harness: one line out, one line in. */
final class Harness {
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final Set<String> SEEN = new HashSet<>();

    private Harness() {
    }

    static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    /** Says that the scenario waits for word, and returns when the harness has said "GO word". */
    static void await(String client, String scenario, String word) throws IOException {
        say("WAIT " + client + " " + scenario + " " + word);
        synchronized (SEEN) {
            while (!SEEN.contains("GO " + word)) {
                String line = IN.readLine();
                Check.that(line != null, "the harness is gone");
                SEEN.add(line.trim());
            }
        }
    }

    static void result(String client, String scenario, long start, Throwable failure) {
        long ms = (System.nanoTime() - start) / 1_000_000;
        String reason = "-";
        if (failure != null) {
            reason = failure instanceof AssertionError ? failure.getMessage() : failure.toString();
            for (StackTraceElement e : failure.getStackTrace()) {
                if (e.getClassName().startsWith("conformance.") && !e.getClassName().equals("conformance.Check")) {
                    reason += " @" + e.getFileName() + ":" + e.getLineNumber();
                    break;
                }
            }
            reason = String.valueOf(reason).replaceAll("\\s+", " ");
        }
        say("RESULT " + client + " " + scenario + (failure == null ? " PASS " : " FAIL ") + ms + " " + reason);
    }
}
