// Users who go from site to site, at a Redis Cluster whose slots follow them.
//
// Each of three sites has a master and a client of clients/ioredis, which reaches the masters of the other
// sites late: through proxies, as natMap names them. In each phase every user is at another site. Some users
// have a slot of their own; others are three to a slot, of whom one is at another site than the other two, so
// that no placement brings all slots to all of their users.
//
// What is asserted depends on no clock: in each window requests are counted by user, and each costs the round
// trip from its user's site to the owner of its slot. A phase ends when in two windows in a row that mean is
// within a tenth of the best one that any static placement of slots has for the same requests, and after 20
// windows within a quarter; there are at most WINDOWS_MAX of them. How soon that is, and the latencies as
// measured, are printed: beside those of keys which are never moved and never leave their site.
//
// PORTOLAN_MASTERS_AT: addresses of the masters, then of other servers. PORTOLAN_SKETCHES: where sketches go.
// PORTOLAN_CONTROLS: a key of each master. PORTOLAN_WRAPPER: the package, built. PORTOLAN_WINDOW_MS.

import assert from "node:assert/strict";
import { createServer, connect } from "node:net";
import { once } from "node:events";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const SITES = 3;
const USERS = 30;
// The first of them are three to a slot.
const SHARING = 18;
const PHASES = 3;
// One way, in milliseconds.
const DELAY_MS = [
  [0, 10, 25],
  [10, 0, 15],
  [25, 15, 0],
];
const EACH_MS = 50;
const WINDOWS_MAX = 60;
// Of the best placement's mean: in so many windows, and after them. Where a busy machine adds as much to each
// request as the way takes, a slot that three users share may stay at the second best site.
const WITHIN = 1.1;
const WINDOWS = 20;
const NEAR = 1.25;

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
    const [url, name] = [env.PORTOLAN_SKETCHES, `site${site}`];
    // A sketch that comes late on a slow machine is not dropped.
    const placement = { url, token: "secret", name, windowMs, deadlineMs: 60_000 };
    // With a natMap ioredis follows MOVED by trying servers at random until it has the new map.
    return new Cluster([natMap[servers[site]]], { natMap, placement, maxRedirections: 1_000 });
  });

  const sum = () => ({ ms: 0, count: 0 });
  let [users, controls] = [sum(), sum()];
  let [phase, isOver] = [0, false];
  /** The third of those who share a slot is a site further. */
  const siteOf = (user) => {
    const group = user < SHARING ? Math.floor(user / 3) + (user % 3 === 2 ? 1 : 0) : user;
    return (group + phase) % SITES;
  };
  // Requests of each user.
  let counts = Array(USERS).fill(0);
  const expected = new Map();
  const use = async (client, key, into, user) => {
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
    const requests = last === undefined || last % 2 === 0 ? 1 : 2;
    into().ms += performance.now() - began;
    into().count += requests;
    if (user !== undefined) counts[user] += requests;
  };
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const loop = async (client, key, into, user) => {
    while (!isOver) {
      await use(client(), key, into, user);
      await sleep(EACH_MS);
    }
  };
  const tag = (user) => (user < SHARING ? `{table${Math.floor(user / 3)}}` : `{user${user}}`);
  const key = (user) => `${tag(user)}:cart${user}`;
  const everyone = [...Array(USERS).keys()];
  const loops = everyone.map((user) =>
    loop(() => clients[siteOf(user)], key(user), () => users, user),
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
  const slots = everyone.map((user) => slotOf(key(user)));
  /** The site of the master that owns a slot, as the first master has it. */
  const placed = async () => {
    const owners = [];
    for (const [first, last, [host, port]] of await clients[0].cluster("SLOTS")) {
      owners.push([first, last, servers.indexOf(`${host}:${port}`)]);
    }
    return (slot) => owners.find(([first, last]) => first <= slot && slot <= last)[2];
  };
  for (phase = 0; phase < PHASES; phase++) {
    let [isWithin, isOnce, since] = [false, false, 0];
    for (let window = 1; !(isWithin && isOnce); window++) {
      assert.ok(window <= WINDOWS_MAX, `phase ${phase}: slots do not follow`);
      [users, controls] = [sum(), sum()];
      counts = Array(USERS).fill(0);
      await sleep(windowMs);
      const [mean, control] = [users.ms / users.count, controls.ms / controls.count];
      const [now, best] = waiting(counts, everyone.map(siteOf), slots, await placed());
      const within = window > WINDOWS ? NEAR : WITHIN;
      [isOnce, isWithin] = [isWithin, now <= best * within];
      if (!isWithin) since = window;
      const measured = `users ${mean.toFixed(2)} ms, keys that stay ${control.toFixed(2)} ms`;
      const modelled = `round trips ${now.toFixed(2)} ms, at best ${best.toFixed(2)} ms`;
      console.log(`phase ${phase} window ${window}: ${measured}; ${modelled}`);
    }
    const near = since < WINDOWS ? "a tenth" : "a quarter";
    console.log(`phase ${phase}: within ${near} of the best placement from window ${since + 1} on`);
  }
  isOver = true;
  await failed;
  for (const client of clients) {
    assert.equal(client.placementStats.dropped, 0);
    await client.quit();
  }
  await worker.terminate();
}

/**
 * The mean round trip of users' requests in ms: with each slot where it is, and with each slot at the best of
 * all sites. No slot's cost depends on where the others are, so trying each at each site is trying all.
 */
function waiting(counts, sites, slots, owners) {
  // By slot: what it costs at each site.
  const costs = new Map();
  for (const [user, slot] of slots.entries()) {
    const before = costs.get(slot) ?? Array(SITES).fill(0);
    const at = (cost, site) => cost + counts[user] * 2 * DELAY_MS[sites[user]][site];
    costs.set(slot, before.map(at));
  }
  const mean = (costOf) => {
    const sum = [...costs].reduce((sum, [slot, each]) => sum + costOf(slot, each), 0);
    return sum / counts.reduce((sum, count) => sum + count, 0);
  };
  return [mean((slot, each) => each[owners(slot)]), mean((_, each) => Math.min(...each))];
}
