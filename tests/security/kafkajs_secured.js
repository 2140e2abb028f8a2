// One record out and in again. The settings of the client are JSON in the first argument.
const { Kafka, logLevel } = require("kafkajs");
const fs = require("fs");

async function main() {
  const given = JSON.parse(process.argv[2]);
  const topic = process.argv[3];
  const settings = { clientId: "test", brokers: [given.broker], logLevel: logLevel.NOTHING, retry: { retries: 2 } };
  if (given.ca) {
    settings.ssl = { ca: [fs.readFileSync(given.ca)] };
    if (given.key) {
      settings.ssl.key = fs.readFileSync(given.key);
      settings.ssl.cert = fs.readFileSync(given.cert);
    }
  }
  if (given.mechanism === "oauthbearer") {
    settings.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: given.token }) };
  } else if (given.mechanism) {
    settings.sasl = { mechanism: given.mechanism, username: given.username, password: given.password };
  }
  const kafka = new Kafka(settings);
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: "hello" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "kafkajs-" + topic });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const value = await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("nothing came")), 20000);
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
  });
  console.log(value);
  process.exit(0);
}
main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
