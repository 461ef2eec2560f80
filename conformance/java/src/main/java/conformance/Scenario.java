package conformance;

/** One behaviour that a user of the client relies on; it throws when the server gets it wrong. */
interface Scenario {
    void run(Env env) throws Exception;
}
