import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster } from "../src/cluster.js";

/** As the cluster calls its server; nothing listens there. */
const NAME = { host: "192.0.2.1", port: 6379 };

/** A cluster of one server, which shows its slots only once a PING has been answered, as if it were slow. */
function showsItsSlotsLate(socket: Socket): void {
  const bulk = (text: string) => `$${text.length}\r\n${text}\r\n`;
  const slots = `*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n${bulk(NAME.host)}:${NAME.port}\r\n${bulk("id")}`;
  socket.on("error", () => {});
  socket.on("data", (bytes) => {
    // Whole requests, each an array of bulk strings, of short ones.
    for (const request of bytes.toString().split(/^\*\d+\r\n/m).slice(1)) {
      const [name, what] = request.split("\r\n").filter((_, at) => at % 2 === 1);
      switch (`${name} ${what}`.toLowerCase()) {
        case "cluster slots":
          // The latency of the PING is taken before.
          void pinged.then(() => sleep(50)).then(() => socket.write(slots));
          break;
        case "ping undefined":
          socket.write("+PONG\r\n", () => hasPinged());
          break;
        case "hello 3":
          socket.write("-ERR unknown command 'HELLO'\r\n");
          break;
        default:
          socket.write("+OK\r\n");
      }
    }
  });
}

let hasPinged = () => {};
const pinged = new Promise<void>((resolve) => (hasPinged = resolve));

test("a server that answered before the slots were known gets its name", async () => {
  const server = createServer(showsItsSlotsLate).listen(0, "127.0.0.1");
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
    placement: { url, windowMs: 100, pingsPerS: 50 },
    redisOptions: { enableReadyCheck: false },
    slotsRefreshTimeout: 60_000,
  });
  cluster.on("error", () => {});
  await once(cluster, "+node");
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
  cluster.disconnect();
  server.close();
  sketches.close();
});
