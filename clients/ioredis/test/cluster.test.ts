import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster } from "../src/cluster.js";
import type { Placement } from "../src/placement.js";
import { keyId } from "../src/sketch.js";

/** As the cluster calls its server; nothing listens there. */
const NAME = { host: "192.0.2.1", port: 6379 };

/** What a server of a cluster answers to a request; empty: nothing yet. */
type Answers = (request: string, socket: Socket) => string;

/** Answers whole requests, each an array of bulk strings, of short ones. */
function serves(socket: Socket, answers: Answers): void {
  socket.on("error", () => {});
  socket.on("data", (bytes) => {
    for (const request of bytes.toString().split(/^\*\d+\r\n/m).slice(1)) {
      const [name, what] = request.split("\r\n").filter((_, at) => at % 2 === 1);
      const answer = answers(`${name} ${what}`.toLowerCase(), socket);
      if (answer) socket.write(answer);
    }
  });
}

const bulk = (text: string) => `$${text.length}\r\n${text}\r\n`;
const SLOTS = `*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n${bulk(NAME.host)}:${NAME.port}\r\n${bulk("id")}`;

/** What all servers answer alike. */
function usual(request: string): string {
  if (request === "cluster slots") return SLOTS;
  if (request === "ping undefined") return "+PONG\r\n";
  return request === "hello 3" ? "-ERR unknown command 'HELLO'\r\n" : "+OK\r\n";
}

/** A cluster of one server, a place for sketches, and what came there. */
async function start(answers: Answers, more: Partial<Placement>) {
  const server = createServer((socket) => serves(socket, answers)).listen(0, "127.0.0.1");
  const bodies: Buffer[] = [];
  const sketches = createHttpServer((request, answer) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      bodies.push(Buffer.concat(pieces));
      answer.writeHead(204).end();
    });
  }).listen(0, "127.0.0.1");
  await Promise.all([once(server, "listening"), once(sketches, "listening")]);
  const reached = { host: "127.0.0.1", port: (server.address() as AddressInfo).port };
  const url = `http://127.0.0.1:${(sketches.address() as AddressInfo).port}`;
  const cluster = new Cluster([reached], {
    natMap: { [`${NAME.host}:${NAME.port}`]: reached },
    placement: { url, windowMs: 100, pingsPerS: 50, ...more },
    redisOptions: { enableReadyCheck: false },
    slotsRefreshTimeout: 60_000,
    lazyConnect: true,
  });
  cluster.on("error", () => {});
  const stop = () => {
    cluster.disconnect();
    server.close();
    sketches.close();
  };
  return { cluster, reached, bodies, stop };
}

test("a server that answered before the slots were known gets its name", async () => {
  // It shows its slots only once a PING has been answered, as if it were slow.
  let hasPinged = () => {};
  const pinged = new Promise<void>((resolve) => (hasPinged = resolve));
  const answers: Answers = (request, socket) => {
    if (request === "ping undefined") socket.write(usual(request), () => hasPinged());
    // The latency of the PING is taken before.
    else if (request === "cluster slots") void pinged.then(() => sleep(50)).then(() => socket.write(SLOTS));
    else return usual(request);
    return "";
  };
  const { cluster, reached, bodies, stop } = await start(answers, {});
  const isKnown = once(cluster, "+node");
  cluster.connect().catch(() => {});
  await isKnown;
  await cluster.nodes("master")[0]?.ping();
  if (cluster.status !== "ready") await once(cluster, "ready");
  await cluster.nodes("master")[0]?.ping();
  const before = bodies.length;
  const names = (body: Buffer) => [NAME, reached].filter((one) => body.includes(`${one.host}:${one.port}`));
  // One window may have begun before.
  const isNamed = () => bodies.slice(before + 1).some((body) => names(body).includes(NAME));
  while (!isNamed()) await sleep(20);
  const last = bodies.at(-1) as Buffer;
  assert.ok(!names(last).includes(reached), "by its name only");
  stop();
});

test("requests that may wait do not count where the application states which", async () => {
  const counts = (name: string) => name === "get";
  const { cluster, bodies, stop } = await start(usual, { counts, quantiles: true });
  await cluster.get("counted");
  await cluster.set("waits", "v");
  const bytesOf = (key: string) => {
    const { high, low } = keyId(key, { high: 0, low: 0 });
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32LE(low, 0);
    bytes.writeUInt32LE(high, 4);
    return bytes;
  };
  const has = (key: string) => bodies.some((body) => body.includes(bytesOf(key)));
  while (!has("counted")) await sleep(20);
  // The window of the other one has passed too.
  const before = bodies.length;
  while (bodies.length < before + 2) await sleep(20);
  assert.ok(!has("waits"));
  assert.ok(bodies.every((body) => body.toString("latin1", 0, 4) === "PSK2"), "with distributions");
  stop();
});
