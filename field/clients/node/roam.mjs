// Users who go from site to site, at a Redis Cluster whose slots follow them.
//
// Each of three sites has a master and a client of clients/ioredis, which reaches the masters of the other
// sites late: through proxies, as natMap names them. In each phase every user is at another site. A phase
// ends when the slots of all users are at the master of their site. In each window the users' mean latency is
// printed beside that of keys which are never moved and never leave their site: what the best static
// placement of the phase has.
//
// PORTOLAN_MASTERS_AT: addresses of the masters, then of other servers. PORTOLAN_SKETCHES: where sketches go.
// PORTOLAN_CONTROLS: a key of each master. PORTOLAN_WRAPPER: the package, built. PORTOLAN_WINDOW_MS.

import assert from "node:assert/strict";
import { createServer, connect } from "node:net";
import { once } from "node:events";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const SITES = 3;
const USERS = 30;
const PHASES = 3;
// One way, in milliseconds.
const DELAY_MS = [
  [0, 10, 25],
  [10, 0, 15],
  [25, 15, 0],
];
const EACH_MS = 50;
const WINDOWS_MAX = 60;

if (isMainThread) await main();
else await proxies();

/** Forwards, late. A thread of its own: the clients' work does not delay it. */
async function proxies() {
  const { servers } = workerData;
  const ports = [];
  for (let site = 0; site < SITES; site++) {
    for (const [at, server] of servers.entries()) {
      const [host, port] = server.split(":");
      const delayMs = DELAY_MS[site][at % SITES];
      const forward = (from, to) => {
        const later = (act) => (delayMs > 0 ? setTimeout(act, delayMs) : act());
        from.on("data", (bytes) => later(() => to.write(bytes)));
        from.on("close", () => later(() => to.destroy()));
        from.on("error", () => {});
      };
      const proxy = createServer({ noDelay: true }, (client) => {
        const behind = connect({ host, port: Number(port), noDelay: true });
        forward(client, behind);
        forward(behind, client);
      });
      proxy.listen(0, "127.0.0.1");
      await once(proxy, "listening");
      ports.push([site, server, proxy.address().port]);
    }
  }
  parentPort.postMessage(ports);
}

async function main() {
  const { env } = process;
  const servers = env.PORTOLAN_MASTERS_AT.split(",");
  const windowMs = Number(env.PORTOLAN_WINDOW_MS);
  const worker = new Worker(new URL(import.meta.url), { workerData: { servers } });
  const [ports] = await once(worker, "message");
  const { Cluster } = await import(env.PORTOLAN_WRAPPER);
  const clients = [...Array(SITES).keys()].map((site) => {
    const natMap = {};
    for (const [of, server, port] of ports) {
      if (of === site) natMap[server] = { host: "127.0.0.1", port };
    }
    const placement = { url: env.PORTOLAN_SKETCHES, token: "secret", name: `site${site}`, windowMs };
    // With a natMap ioredis follows MOVED by trying servers at random until it has the new map.
    return new Cluster([natMap[servers[site]]], { natMap, placement, maxRedirections: 1_000 });
  });

  const sum = () => ({ ms: 0, count: 0 });
  let [users, controls] = [sum(), sum()];
  let [phase, isOver] = [0, false];
  const siteOf = (user) => (user + phase) % SITES;
  const expected = new Map();
  const use = async (client, key, into) => {
    const began = performance.now();
    const last = expected.get(key);
    if (last === undefined || last % 2 === 0) {
      assert.equal(await client.set(key, (last ?? 0) + 1), "OK");
      expected.set(key, (last ?? 0) + 1);
    } else {
      assert.equal(await client.get(key), `${last}`, key);
      expected.set(key, last + 1);
      assert.equal(await client.set(key, last + 1), "OK");
    }
    // A turn of one or two requests; what is compared has as many.
    into().ms += performance.now() - began;
    into().count += last === undefined || last % 2 === 0 ? 1 : 2;
  };
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const loop = async (client, key, into) => {
    while (!isOver) {
      await use(client(), key, into);
      await sleep(EACH_MS);
    }
  };
  const key = (user) => `{user${user}}:cart`;
  const loops = [...Array(USERS).keys()].map((user) =>
    loop(() => clients[siteOf(user)], key(user), () => users),
  );
  for (const [site, control] of env.PORTOLAN_CONTROLS.split(",").entries()) {
    loops.push(loop(() => clients[site], control, () => controls));
  }
  const failed = Promise.all(loops);
  failed.catch((error) => {
    console.error(error);
    process.exit(1);
  });

  const { default: slotOf } = await import("cluster-key-slot");
  /** How many users' slots are elsewhere, as the first master has it. */
  const astray = async () => {
    const owners = [];
    for (const [first, last, [host, port]] of await clients[0].cluster("SLOTS")) {
      owners.push([first, last, `${host}:${port}`]);
    }
    const owner = (slot) => owners.find(([first, last]) => first <= slot && slot <= last)?.[2];
    const is = (user) => owner(slotOf(key(user))) !== servers[siteOf(user)];
    return [...Array(USERS).keys()].filter(is).length;
  };
  for (phase = 0; phase < PHASES; phase++) {
    let settled = 0;
    for (let window = 1; settled < 2; window++) {
      assert.ok(window <= WINDOWS_MAX, `phase ${phase}: ${await astray()} users' slots are elsewhere`);
      [users, controls] = [sum(), sum()];
      await sleep(windowMs);
      const [mean, best] = [users.ms / users.count, controls.ms / controls.count];
      const away = await astray();
      settled += away === 0 ? 1 : 0;
      const means = `users ${mean.toFixed(2)} ms, at best ${best.toFixed(2)} ms`;
      console.log(`phase ${phase} window ${window}: ${means}; ${away} slots elsewhere`);
    }
  }
  isOver = true;
  await failed;
  for (const client of clients) {
    assert.equal(client.placementStats.dropped, 0);
    await client.quit();
  }
  await worker.terminate();
}
