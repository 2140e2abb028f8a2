// One transaction that aborts and one that commits, through kafkajs. Arguments: bootstrap, source, sink, transactional id.
const { Kafka, logLevel } = require("kafkajs");

async function main() {
  const [bootstrap, source, sink, name] = process.argv.slice(2);
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  for (const [tag, aborts] of [["a", true], ["c", false]]) {
    const transaction = await producer.transaction();
    const messages = [0, 1, 2, 3].map((n) => ({ value: `${tag}${n}`, partition: n % 2 }));
    await transaction.send({ topic: sink, messages });
    const partitions = [{ partition: 0, offset: aborts ? "7" : "9" }];
    await transaction.sendOffsets({ consumerGroupId: name, topics: [{ topic: source, partitions }] });
    await (aborts ? transaction.abort() : transaction.commit());
  }
  await producer.disconnect();
  console.log(JSON.stringify("done"));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
