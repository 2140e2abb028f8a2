import java.io.File;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/** Prints what Kafka's own classes read: a checkpoint of offsets, then one of leader epochs. */
public final class CheckpointReader {
    public static void main(String[] args) throws Exception {
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        new OffsetCheckpointFile(new File(args[0]), failures).read()
            .forEach((partition, offset) -> System.out.println(partition + " " + offset));
        new LeaderEpochCheckpointFile(new File(args[1]), failures).read()
            .forEach(entry -> System.out.println(entry.epoch() + " " + entry.startOffset()));
    }
}
