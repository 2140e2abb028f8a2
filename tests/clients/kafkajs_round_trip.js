// Produces and consumes through kafkajs. Arguments: bootstrap, topic, codec, idempotent, count. Prints the values read.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

async function main() {
  const [bootstrap, topic, codec, idempotent, count] = process.argv.slice(2);
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ idempotent: idempotent === "true", maxInFlightRequests: idempotent === "true" ? 1 : 5 });
  await producer.connect();
  const messages = [];
  for (let n = 0; n < Number(count); n++) {
    messages.push({ key: `k${n}`, value: `a value of some length to compress, number ${n}`, headers: { n: `${n}` } });
  }
  const compression = codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;
  const sent = await producer.send({ topic, messages, compression, acks: -1 });
  await producer.disconnect();
  if (sent[0].errorCode !== 0) throw new Error(`produce failed: ${JSON.stringify(sent)}`);

  // kafkajs consumes through groups only, so its fetch is driven through the cluster object it is built on.
  const admin = kafka.admin();
  await admin.connect();
  const offsets = await admin.fetchTopicOffsets(topic);
  const described = await admin.fetchTopicMetadata({ topics: [topic] });
  await admin.disconnect();
  const { Cluster } = { Cluster: require("kafkajs/src/cluster") };
  const socketFactory = require("kafkajs/src/network/socketFactory")();
  const { createLogger } = require("kafkajs/src/loggers");
  const logger = createLogger({ level: logLevel.ERROR, logCreator: require("kafkajs/src/loggers/console") });
  const cluster = new Cluster({
    logger, socketFactory, brokers: [bootstrap], ssl: false, sasl: false, clientId: "kafkajs",
    connectionTimeout: 3000, authenticationTimeout: 3000, reauthenticationThreshold: 1000, requestTimeout: 30000,
    enforceRequestTimeout: true, metadataMaxAge: 60000, retry: {}, allowAutoTopicCreation: false, maxInFlightRequests: null,
    isolationLevel: 1, offsets: new Map(),
  });
  await cluster.connect();
  await cluster.addTargetTopic(topic);
  const broker = await cluster.findBroker({ nodeId: String(described.topics[0].partitions[0].leader) });
  const values = [];
  let offset = "0";
  while (values.length < Number(count)) {
    const { responses } = await broker.fetch({
      maxWaitTime: 500, minBytes: 1, maxBytes: 1048576, isolationLevel: 1,
      topics: [{ topic, partitions: [{ partition: 0, fetchOffset: offset, maxBytes: 1048576 }] }],
    });
    for (const message of responses[0].partitions[0].messages) {
      values.push(message.value.toString());
      offset = String(Number(message.offset) + 1);
    }
  }
  await cluster.disconnect();
  console.log(JSON.stringify({ offsets, values }));
}

main().catch((error) => { console.error(error); process.exit(1); });
