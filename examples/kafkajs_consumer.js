// A worker of a group in JavaScript. Usage: node kafkajs_consumer.js [bootstrap] [topic] [group]
// Offsets are committed after the work, batch by batch.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap = "127.0.0.1:9092", topic = "orders", groupId = "shipping-js"] = process.argv.slice(2);

async function work(partition, message) {
  console.log(`${topic}[${partition}]@${message.offset}: ${message.value}`);
}

async function main() {
  const kafka = new Kafka({ clientId: "kafkajs-consumer", brokers: [bootstrap], logLevel: logLevel.ERROR });
  // A fetch waits this long for records; so does the end of the program. The default is 5 seconds.
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 500 });
  for (const signal of ["SIGINT", "SIGTERM"]) {
    process.on(signal, async () => {
      await consumer.disconnect(); // leaves the group
      process.exit(0);
    });
  }
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      let next;
      for (const message of batch.messages) {
        if (!isRunning() || isStale()) break;
        await work(batch.partition, message);
        resolveOffset(message.offset); // if something below fails, the batch is handed out again from here
        next = (BigInt(message.offset) + 1n).toString();
        await heartbeat(); // so that long work does not cost the membership
      }
      if (next !== undefined) {
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }]);
      }
    },
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
