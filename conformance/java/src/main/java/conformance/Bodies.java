package conformance;

import java.nio.charset.StandardCharsets;

/** Deterministic bodies; the Go client computes the same bytes from the same names. */
final class Bodies {
    static final int BIG = 7 * 512 * 1024; // 3.5 MiB

    private Bodies() {
    }

    /** Bytes that do not compress: a 32-bit xorshift seeded with the FNV-1a hash of the name. */
    static byte[] noise(String name, int size) {
        int x = 0x811c9dc5;
        for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
            x = (x ^ (b & 0xff)) * 0x01000193;
        }
        if (x == 0) {
            x = 1;
        }
        byte[] out = new byte[size];
        for (int i = 0; i < size; i++) {
            x ^= x << 13;
            x ^= x >>> 17;
            x ^= x << 5;
            out[i] = (byte) x;
        }
        return out;
    }

    /** Text that compresses well, at least size bytes long. */
    static byte[] text(String name, int size) {
        StringBuilder s = new StringBuilder();
        for (int i = 0; s.length() < size; i++) {
            s.append(name).append(" line ").append(i).append(": all work and no play\n");
        }
        return s.toString().getBytes(StandardCharsets.UTF_8);
    }
}
