// Counters and values in all slots, through an unmodified ioredis Cluster, while slots move.
//
// The environment contains what cluster.py describes. Nothing may go wrong but what the client repairs by
// itself, and at the end every key holds what was written last and every counter what was added.
// With PORTOLAN_SKETCHES (a URL) the client is that of clients/ioredis, built at PORTOLAN_WRAPPER.

import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { Cluster as Plain } from "ioredis";

const { PORTOLAN_REDIS, PORTOLAN_PREFIX, PORTOLAN_STARTED, PORTOLAN_STOP, PORTOLAN_MASTERS } =
  process.env;
const [host, port] = PORTOLAN_REDIS.split(":");
const KEYS = 300;
const numbers = [...Array(KEYS).keys()];

const { PORTOLAN_SKETCHES: url, PORTOLAN_WRAPPER } = process.env;
const { Cluster } = url ? await import(PORTOLAN_WRAPPER) : { Cluster: Plain };
// A sketch that comes late on a slow machine is not dropped.
const placement = { url, token: "secret", windowMs: 500, deadlineMs: 60_000 };
const cluster = new Cluster([{ host, port: Number(port) }], url ? { placement } : {});
let rounds = 0;
while (rounds === 0 || !existsSync(PORTOLAN_STOP)) {
  rounds += 1;
  for (const key of numbers) {
    const name = `${PORTOLAN_PREFIX}${key}`;
    assert.equal(await cluster.set(name, rounds), "OK");
    assert.equal(await cluster.get(name), `${rounds}`, name);
  }
  // Many at once, over as many connections as there are sites.
  const counts = await Promise.all(numbers.map((key) => cluster.incr(`${PORTOLAN_PREFIX}n${key}`)));
  assert.deepEqual(counts, Array(KEYS).fill(rounds));
  // A pipeline of ioredis is of keys that one site holds; those with a tag share their slot.
  const pipeline = cluster.pipeline();
  for (const key of numbers) pipeline.set(`${PORTOLAN_PREFIX}{p}${key}`, rounds);
  for (const [error, answer] of await pipeline.exec()) {
    assert.equal(error, null);
    assert.equal(answer, "OK");
  }
  if (rounds === 1) writeFileSync(PORTOLAN_STARTED, "");
}
for (const key of numbers) {
  assert.equal(await cluster.get(`${PORTOLAN_PREFIX}${key}`), `${rounds}`);
  assert.equal(await cluster.get(`${PORTOLAN_PREFIX}n${key}`), `${rounds}`);
  assert.equal(await cluster.get(`${PORTOLAN_PREFIX}{p}${key}`), `${rounds}`);
}
const masters = cluster.nodes("master").length;
console.log(`ioredis: ${rounds} rounds of ${KEYS} keys, ${masters} masters`);
assert.equal(masters, Number(PORTOLAN_MASTERS));
await cluster.quit();
if (url) {
  console.log(cluster.placementStats);
  assert.ok(cluster.placementStats.sent > 0 && cluster.placementStats.dropped === 0);
}
