// Publishes an event, receives it and acknowledges it, with the CloudEvents SDK for JavaScript.
//
//   node quick_start.mjs http://127.0.0.1:10105

import { CloudEvent, HTTP } from "cloudevents";

const mesh = process.argv[2];

async function call(path, init) {
  const answer = await fetch(mesh + path, init);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

const post = (path, body) =>
  call(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

await post("/events/subscribe", { clientId: "js", topic: "js", mode: "LOAD_BALANCE", group: "js" });

const event = new CloudEvent({ source: "/shop", type: "order.placed", data: { total: 42 } });
const { headers, body } = HTTP.structured(event);
await call("/events/publish?topic=js", { method: "POST", headers, body });

for (const delivery of await call("/events/poll?clientId=js&timeoutMs=20000")) {
  const headers = { "content-type": "application/cloudevents+json" };
  const received = HTTP.toEvent({ headers, body: JSON.stringify(delivery.event) });
  console.log(`received ${received.type}: ${JSON.stringify(received.data)}`);
  await post("/events/ack", { deliveryId: delivery.deliveryId });
}
