// A page in a real browser that receives events by EventSource.
//
//   node browser.mjs http://127.0.0.1:10105 CLIENT
//
// The page and the mesh must have one origin, so this serves the page itself and pipes /events/ to the mesh.
// When the mesh is not there it breaks the page's connection off, which is what the page would see of a mesh
// that it spoke to itself. A line on standard input is the mesh's address from then on; the end of the input
// ends everything. Each line of the output is a JSON array: ["open"], ["error"],
// ["event", last event id, data]. The modules are in the folder that MODULES names, the browser is CHROMIUM.

import { createServer, request } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { chromium } = createRequire(`${process.env.MODULES}/`)("playwright-core");

let mesh = process.argv[2];
const client = process.argv[3];

const page = `<!doctype html><title>events</title><script>
  const source = new EventSource("/events/stream?clientId=${encodeURIComponent(client)}");
  source.onopen = () => report("open");
  source.onerror = () => report(source.readyState === EventSource.CLOSED ? "closed" : "error");
  source.onmessage = (message) => report("event", message.lastEventId, message.data);
</script>`;

const server = createServer((incoming, answer) => {
  if (!incoming.url.startsWith("/events/")) {
    answer.writeHead(200, { "content-type": "text/html" }).end(incoming.url === "/" ? page : "");
    return;
  }
  const breakOff = () => answer.destroy();
  const onward = request(mesh + incoming.url, { method: incoming.method, headers: incoming.headers }, (reply) => {
    answer.writeHead(reply.statusCode, reply.headers);
    answer.flushHeaders();
    reply.on("error", breakOff).on("aborted", breakOff).pipe(answer);
  });
  onward.on("error", breakOff);
  answer.on("close", () => onward.destroy());
  incoming.pipe(onward);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const tab = await browser.newPage();
await tab.exposeFunction("report", (...words) => console.log(JSON.stringify(words)));
await tab.goto(`http://127.0.0.1:${server.address().port}/`);

for await (const line of createInterface({ input: process.stdin })) mesh = line;
await browser.close();
process.exit(0);
