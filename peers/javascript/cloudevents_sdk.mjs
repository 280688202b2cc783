// Publishes with the CloudEvents SDK for JavaScript and parses what is delivered with it.
//
//   node cloudevents_sdk.mjs http://127.0.0.1:10105
//
// Every event goes in structured, in binary and within a batch; what comes back must be equal in every
// attribute, every extension and the data. Exits with 1 and says what differs otherwise. The modules are in
// the folder that MODULES names.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { CloudEvent, HTTP } = createRequire(`${process.env.MODULES}/`)("cloudevents");

const mesh = process.argv[2];
const topic = "javascript-sdk";

function event(id, data, datacontenttype, more = {}) {
  return new CloudEvent({
    id,
    source: "/shop/a?b=c#d",
    type: "com.example.order.placed",
    time: "2026-02-03T04:05:06.789Z",
    datacontenttype,
    ...more,
    data,
  });
}

const extensions = { tone: "loud and 'clear'", partitionkey: "customer 7", traceparent: `00-${"a".repeat(32)}` };

function events() {
  return [
    event("json", { total: 42.5, lines: [1, null, true, "ü"], deep: { a: {} } }, "application/json", {
      subject: "orders/42",
      dataschema: "https://example.com/schema",
      ...extensions,
    }),
    event("array", [1, 2, 3], "application/json"),
    event("suffix", { x: 1 }, "application/vnd.example+json"),
    event("text", "first line\nsecond line ü", "text/plain; charset=utf-8", extensions),
    event("bytes", Uint8Array.from({ length: 256 }, (_, byte) => byte), "application/octet-stream", extensions),
    event("none", undefined, "application/json"),
  ];
}

async function call(path, init) {
  const answer = await fetch(mesh + path, { ...init, signal: AbortSignal.timeout(40_000) });
  assert.ok(answer.ok, `${path}: ${answer.status} ${answer.ok ? "" : await answer.text()}`);
  return answer.json();
}

const post = (path, body) =>
  call(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

async function publish(path, message) {
  const answer = await call(`/events/${path}?topic=${topic}`, {
    method: "POST",
    headers: message.headers,
    body: message.body,
  });
  assert.equal(answer.status, "accepted");
}

/** The next events, each parsed by the SDK, acknowledged. */
async function receive(count) {
  const received = [];
  while (received.length < count) {
    const deliveries = await call("/events/poll?clientId=javascript&timeoutMs=20000");
    assert.ok(deliveries.length > 0, `${count - received.length} events did not come`);
    for (const { event } of deliveries) {
      const headers = { "content-type": "application/cloudevents+json" };
      received.push(HTTP.toEvent({ headers, body: JSON.stringify(event) }));
    }
    await post("/events/ack", { deliveryId: deliveries.map((delivery) => delivery.deliveryId) });
  }
  return received;
}

/** An event as plain values; the SDK parses base64 into an array of another type than the one it takes. */
function plain(event) {
  const { data, data_base64, ...attributes } = { ...event };
  const isBinary = ArrayBuffer.isView(data);
  return {
    attributes: Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined)),
    data: isBinary ? Array.from(data) : data,
    isBinary,
  };
}

function compare(how, sent, got) {
  const byId = new Map(got.map((event) => [event.id, event]));
  assert.equal(byId.size, sent.length, how);
  for (const event of sent) {
    assert.deepEqual(plain(byId.get(event.id)), plain(event), `${how}: ${event.id}`);
  }
}

await post("/events/subscribe", { clientId: "javascript", topic, mode: "LOAD_BALANCE" });

// A number and a boolean are text in headers and themselves in JSON.
const typed = event("typed", { x: 1 }, "application/json", { weight: 7, urgent: true });

let sent = [...events(), typed];
for (const one of sent) await publish("publish", HTTP.structured(one));
compare("structured", sent, await receive(sent.length));

sent = events();
for (const one of sent) await publish("publish", HTTP.binary(one));
compare("binary", sent, await receive(sent.length));

// The SDK writes no batches: they are arrays of what it writes for each event.
sent = [...events(), typed];
const batch = `[${sent.map((one) => HTTP.structured(one).body).join(",")}]`;
await publish("publish-batch", { headers: { "content-type": "application/cloudevents-batch+json" }, body: batch });
compare("batch", sent, await receive(sent.length));

console.log("all events came back equal");
