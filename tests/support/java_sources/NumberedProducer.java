import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * An idempotent producer that sends what it is told to, and tells what became of it.
 *
 * Arguments: the topic, then properties as key=value. A line on standard input is a number, a partition and a value. For
 * each there is one line on standard output: the number, the partition and the offset, or -1 if it was given up.
 */
public final class NumberedProducer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (int i = 1; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            properties.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        properties.put("enable.idempotence", "true");
        properties.put("acks", "all");
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                String[] words = line.split(" ", 3);
                byte[] value = words[2].getBytes(StandardCharsets.US_ASCII);
                int partition = Integer.parseInt(words[1]);
                producer.send(new ProducerRecord<>(arguments[0], partition, null, value), (metadata, error) -> {
                    long offset = error == null ? metadata.offset() : -1;
                    synchronized (System.out) {
                        System.out.println(words[0] + " " + partition + " " + offset);
                        System.out.flush();
                    }
                });
            }
        }
    }
}
