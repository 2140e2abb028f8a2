// What an application does with a group through kafkajs. Arguments: bootstrap, topic (two partitions), group.
// Prints what it saw as one line of JSON.
const { Kafka, logLevel } = require("kafkajs");

async function main() {
  const [bootstrap, topic, groupId] = process.argv.slice(2);
  const kafka = new Kafka({ brokers: [bootstrap], clientId: "worker-1", logLevel: logLevel.ERROR });
  const seen = {};
  const producer = kafka.producer();
  await producer.connect();
  const send = (partition, ...values) =>
    producer.send({ topic, messages: values.map((value) => ({ partition, value })) });
  await send(0, "0:0", "0:1", "0:2");
  await send(1, "1:0");

  const values = [];
  const waiting = [];
  const until = (condition) => new Promise((resolve) => {
    if (condition()) resolve();
    else waiting.push({ condition, resolve });
  });
  const options = { groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 50 };
  const started = async (settings) => {
    const consumer = kafka.consumer(options);
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({
      ...settings,
      eachMessage: async ({ message }) => {
        values.push(message.value.toString());
        for (const one of waiting.splice(0)) one.condition() ? one.resolve() : waiting.push(one);
      },
    });
    return consumer;
  };

  const admin = kafka.admin();
  await admin.connect();
  let consumer = await started({ autoCommitInterval: 100 });
  await until(() => values.length === 4);
  const described = await admin.describeGroups([groupId]);
  const { state, protocol, members } = described.groups[0];
  seen.described = { state, protocol, members: members.map(({ clientId, clientHost }) => ({ clientId, clientHost })) };

  consumer.pause([{ topic, partitions: [1] }]);
  await send(1, "1:1");
  await send(0, "0:3");
  await until(() => values.includes("0:3"));
  seen.whilePaused = values.includes("1:1");
  consumer.resume([{ topic, partitions: [1] }]);
  await until(() => values.includes("1:1"));

  values.length = 0;
  consumer.seek({ topic, partition: 0, offset: "2" });
  await until(() => values.length === 2);
  seen.afterSeek = [...values];
  await consumer.disconnect();

  const offsets = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
    .sort((a, b) => a.partition - b.partition).map(({ offset }) => Number(offset));
  seen.autoCommitted = await offsets();
  seen.listed = (await admin.listGroups()).groups.filter((group) => group.groupId === groupId);

  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "3" }] });
  values.length = 0;
  consumer = await started({});
  await until(() => values.length === 1);
  seen.afterSet = [...values];
  await consumer.disconnect();

  await admin.deleteGroups([groupId]);
  seen.afterDelete = (await admin.listGroups()).groups.filter((group) => group.groupId === groupId);
  await producer.disconnect();
  await admin.disconnect();
  console.log(JSON.stringify(seen));
}

main().catch((error) => { console.error(error); process.exit(1); });
