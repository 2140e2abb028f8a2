import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one Java machine, whose start would else be most of the time.
 *
 * A line on standard input is a call: the main class, what the tool reads on its standard input, and its arguments, each
 * in base64. The answer is a line with the exit code, and in base64 what the tool wrote to its standard output and to
 * its standard error.
 */
public final class ToolRunner {
    /** Thrown where a tool would end the process; tools that catch everything are silenced until they return. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final int NOT_ENDED = -1;
    private static int exitCode;
    private static final List<Runnable> shutdownHooks = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure(ToolRunner::end);
        Exit.setHaltProcedure(ToolRunner::end);
        Exit.setShutdownHookAdder((name, hook) -> shutdownHooks.add(hook));
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = Arrays.stream(line.split(" ", -1)).map(ToolRunner::decoded).toArray(String[]::new);
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            int code = run(words[0], words[1], Arrays.copyOfRange(words, 2, words.length), output, errors);
            answers.println(code + " " + encoded(output) + " " + encoded(errors));
            answers.flush();
        }
    }

    private static int run(
            String tool, String input, String[] arguments, ByteArrayOutputStream output, ByteArrayOutputStream errors) {
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        exitCode = NOT_ENDED;
        shutdownHooks.clear();
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (exitCode == NOT_ENDED) {
                thrown.getCause().printStackTrace(System.err);
                exitCode = 1;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace(System.err);
            exitCode = 127;
        }
        // The console producer sends what it has left in its hook.
        for (Runnable hook : shutdownHooks) {
            hook.run();
        }
        System.out.flush();
        System.err.flush();
        return Math.max(exitCode, 0);
    }

    private static void end(int code, String message) {
        if (exitCode == NOT_ENDED) {
            exitCode = code;
            System.out.flush();
            System.err.flush();
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
