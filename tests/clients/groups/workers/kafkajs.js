// A member of a group through kafkajs: processes, then commits. Its only assigner is its own round-robin.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const orders = JSON.parse(process.argv[2]);
const ledger = fs.openSync(orders.ledger, "a");
const report = (event) => fs.writeSync(ledger, JSON.stringify({ member: orders.member, ...event }) + "\n");

async function main() {
  const kafka = new Kafka({
    brokers: [orders.bootstrap], clientId: orders.member, logLevel: logLevel.ERROR,
    retry: { initialRetryTime: 50, maxRetryTime: 300, retries: 100 },
  });
  const consumer = kafka.consumer({
    groupId: orders.group, sessionTimeout: orders.session_timeout_ms, heartbeatInterval: orders.heartbeat_interval_ms,
    rebalanceTimeout: 10000, maxWaitTimeInMs: 100, metadataMaxAge: 1000, retry: { initialRetryTime: 50, maxRetryTime: 300, retries: 100 },
  });
  const { GROUP_JOIN, REBALANCING } = consumer.events;
  consumer.on(REBALANCING, () => report({ event: "assigned", partitions: [] }));
  consumer.on(GROUP_JOIN, ({ payload }) =>
    report({ event: "assigned", partitions: payload.memberAssignment[orders.topic] || [] }));
  await consumer.connect();
  await consumer.subscribe({ topics: [orders.topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, isRunning, isStale }) => {
      let next = null;
      for (const message of batch.messages) {
        if (!isRunning() || isStale()) break;
        report({ event: "processed", partition: batch.partition, offset: Number(message.offset), value: message.value.toString() });
        next = Number(message.offset) + 1;
      }
      if (next === null) return;
      try {
        await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: String(next) }]);
      } catch (problem) {
        // Thrown out of the group: the next heartbeat finds out and joins again, from where the last commit was.
        console.log(`commit: ${problem}`);
        return;
      }
      // Nothing may fail after this: kafkajs would hand out the batch again.
      report({ event: "committed", partition: batch.partition, offset: next });
    },
  });
  process.on("SIGTERM", async () => {
    report({ event: "left" });
    await consumer.disconnect();
    process.exit(0);
  });
}

main().catch((error) => {
  report({ event: "failed", error: String(error) });
  process.exit(1);
});
