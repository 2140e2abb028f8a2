import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group through Kafka's own client: processes, then commits; also before it gives a partition away. */
public final class JavaMember implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final ObjectMapper json = new ObjectMapper();
    private final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
    private final TreeSet<Integer> owned = new TreeSet<>();
    private final JsonNode orders;
    private final FileOutputStream ledger;
    private final KafkaConsumer<String, String> consumer;
    private volatile boolean stopping;

    public static void main(String[] arguments) throws Exception {
        new JavaMember(new ObjectMapper().readTree(arguments[0])).run();
    }

    private JavaMember(JsonNode orders) throws Exception {
        this.orders = orders;
        ledger = new FileOutputStream(orders.get("ledger").asText(), true);
        Properties config = new Properties();
        config.put("bootstrap.servers", orders.get("bootstrap").asText());
        config.put("group.id", orders.get("group").asText());
        config.put("client.id", orders.get("member").asText());
        config.put("group.protocol", orders.get("protocol").asText());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        config.put("metadata.max.age.ms", "1000");
        config.put("reconnect.backoff.ms", "20");
        config.put("reconnect.backoff.max.ms", "200");
        if (orders.get("protocol").asText().equals("consumer")) {
            config.put("group.remote.assignor", orders.get("assignor").asText());
        } else {
            config.put("partition.assignment.strategy", ASSIGNORS.get(orders.get("assignor").asText()));
            config.put("session.timeout.ms", orders.get("session_timeout_ms").asText());
            config.put("heartbeat.interval.ms", orders.get("heartbeat_interval_ms").asText());
        }
        if (orders.has("instance_id")) {
            config.put("group.instance.id", orders.get("instance_id").asText());
        }
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private void run() throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
            Runtime.getRuntime().halt(0);
        }));
        consumer.subscribe(List.of(orders.get("topic").asText()), this);
        while (!stopping) {
            try {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    report(Map.of("event", "processed", "partition", record.partition(), "offset", record.offset(),
                        "value", record.value()));
                    done.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                commit();
            } catch (WakeupException stop) {
                stopping = true;
            }
        }
        commit();
        consumer.close();
    }

    private void commit() {
        if (done.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.copyOf(done);
        try {
            consumer.commitSync(offsets);
        } catch (WakeupException stop) {
            stopping = true;
            return;
        } catch (KafkaException problem) {
            System.out.println("commit: " + problem);
            return;
        }
        offsets.forEach((partition, offset) ->
            report(Map.of("event", "committed", "partition", partition.partition(), "offset", offset.offset())));
        done.clear();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> owned.add(partition.partition()));
        report(Map.of("event", "assigned", "partitions", owned));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        onPartitionsLost(partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> {
            done.remove(partition);
            owned.remove(partition.partition());
        });
        report(Map.of("event", "assigned", "partitions", owned));
    }

    /** One write of one line, so that lines of several processes never mix. */
    private void report(Map<String, Object> event) {
        try {
            Map<String, Object> line = new HashMap<>(event);
            line.put("member", orders.get("member").asText());
            ledger.write((json.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException broken) {
            throw new java.io.UncheckedIOException(broken);
        }
    }
}
