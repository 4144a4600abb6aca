// A client of MQTT over WebSocket by mqtt.js: the build for browsers, on node's own WebSocket.
//
//   node mqttjs.mjs FOLDER URL VERSION WISHES
//
// FOLDER holds node_modules, VERSION is 4 (3.1.1) or 5, WISHES is a JSON object with `subscribe`
// ({topic, qos, properties}) and `publish` ([{topic, payload, qos, retain, properties}]), done in
// that order. Every line that it writes is an object: what was granted, what was published, and
// the notifications as they come. It runs until it is ended.

import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [folder, url, version, wishes] = process.argv.slice(2);
const { subscribe, publish = [] } = JSON.parse(wishes);
// By these the library knows that it is in a page.
globalThis.window = globalThis;
globalThis.document = { URL: url };
const { default: mqtt } = await import(
  pathToFileURL(join(folder, "mqtt", "dist", "mqtt.esm.js")).href
);

const say = (what) => console.log(JSON.stringify(what));
const client = await mqtt.connectAsync(url, {
  protocolVersion: Number(version),
  reconnectPeriod: 0,
  timerVariant: "native",
});
client.on("message", (topic, payload, packet) => {
  const { qos, retain, properties = {} } = packet;
  const ids = [properties.subscriptionIdentifier ?? []].flat();
  const user = { ...properties.userProperties };
  say({ notified: { topic, payload: payload.toString(), qos, retain, ids, user } });
});
client.on("error", (error) => say({ error: error.message }));
client.on("close", () => say({ closed: true }));

if (subscribe) {
  try {
    const { topic, qos = 0, properties } = subscribe;
    const granted = await client.subscribeAsync(topic, { qos, properties });
    say({ granted: granted.map((each) => each.qos) });
  } catch (error) {
    say({ refused: error.message });
  }
}
for (const { topic, payload, ...options } of publish) {
  await client.publishAsync(topic, payload, options);
  say({ published: topic });
}
