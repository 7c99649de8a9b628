// Every command of Portolan's Redis front, through an unmodified ioredis.
//
// Where the server is and how to come in is in the environment: PORTOLAN_REDIS (host:port), and,
// where they apply, PORTOLAN_CA, PORTOLAN_USER, PORTOLAN_PASSWORD. ioredis chooses the version of the
// protocol by itself. The database must be empty, and is emptied at the end.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const [host, port] = process.env.PORTOLAN_REDIS.split(":");
const { PORTOLAN_CA, PORTOLAN_USER, PORTOLAN_PASSWORD } = process.env;
const opened = [];

function connect(more = {}) {
  const redis = new Redis({
    host,
    port: Number(port),
    commandTimeout: 20_000,
    maxRetriesPerRequest: 2,
    ...(PORTOLAN_CA && { tls: { ca: readFileSync(PORTOLAN_CA), servername: "localhost" } }),
    ...(PORTOLAN_USER && { username: PORTOLAN_USER, password: PORTOLAN_PASSWORD }),
    ...more,
  });
  opened.push(redis);
  return redis;
}

const parts = {
  async connection(r) {
    assert.equal(await r.ping(), "PONG");
    assert.equal(await r.echo("hello"), "hello");
    assert.equal(await r.client("SETNAME", "field"), "OK");
    assert.equal(await r.client("GETNAME"), "field");
    assert.ok((await r.client("ID")) > 0);
    assert.equal(await r.client("NO-EVICT", "on"), "OK");
    assert.equal(await r.select(0), "OK");
    await assert.rejects(r.select(1), /DB index is out of range/);
    assert.match(await r.info(), /redis_version:/);
    await r.config("GET", "maxmemory");
    await assert.rejects(r.call("NOSUCH", "a"), /unknown command/);
    await assert.rejects(r.call("GET"), /wrong number of arguments/);
  },

  async strings(r) {
    assert.equal(await r.set("s", "one"), "OK");
    assert.equal(await r.get("s"), "one");
    assert.equal(await r.get("absent"), null);
    assert.equal(await r.set("s", "two", "NX"), null);
    assert.equal(await r.set("absent", "two", "XX"), null);
    assert.equal(await r.set("s", "two", "XX"), "OK");
    assert.equal(await r.getset("s", "three"), "two");
    assert.equal(await r.append("s", "!"), 6);
    assert.equal(await r.getdel("s"), "three!");
    assert.equal(await r.mset("m1", "a", "m2", "b"), "OK");
    assert.deepEqual(await r.mget("m1", "absent", "m2"), ["a", null, "b"]);
    assert.equal(await r.exists("m1", "m1", "absent"), 2);
    assert.equal(await r.type("m1"), "string");
    assert.equal(await r.del("m1"), 1);
    assert.equal(await r.unlink("m2"), 1);
    const odd = Buffer.from(Array.from({ length: 70_000 }, (_, i) => i & 255));
    await r.set("binary", odd);
    assert.ok(odd.equals(await r.getBuffer("binary")));
    await r.del("binary");
  },

  async numbers(r) {
    assert.equal(await r.incr("n"), 1);
    assert.equal(await r.incrby("n", 41), 42);
    assert.equal(await r.decr("n"), 41);
    await r.set("n", "many");
    await assert.rejects(r.incr("n"), /value is not an integer or out of range/);
    await r.del("n");
  },

  async expiry(r) {
    await r.set("e", "x", "EX", 100);
    assert.ok((await r.ttl("e")) > 90);
    assert.equal(await r.persist("e"), 1);
    assert.equal(await r.ttl("e"), -1);
    assert.equal(await r.ttl("absent"), -2);
    assert.equal(await r.expire("e", 100), 1);
    assert.equal(await r.pexpire("e", 50), 1);
    const end = Date.now() + 20_000;
    while (await r.exists("e")) {
      assert.ok(Date.now() < end, "the key does not expire");
      await sleep(10);
    }
  },

  async hashes(r) {
    assert.equal(await r.hset("h", { a: "1", b: "2" }), 2);
    assert.equal(await r.hget("h", "a"), "1");
    assert.deepEqual(await r.hmget("h", "a", "absent"), ["1", null]);
    assert.deepEqual({ ...(await r.hgetall("h")) }, { a: "1", b: "2" });
    assert.equal(await r.hexists("h", "a"), 1);
    assert.equal(await r.hlen("h"), 2);
    assert.equal(await r.hsetnx("h", "a", "4"), 0);
    assert.equal(await r.hincrby("h", "a", 9), 10);
    assert.equal(await r.hdel("h", "a", "b"), 2);
    await r.hset("h", "a", "1");
    await assert.rejects(r.get("h"), /WRONGTYPE/);
    await r.del("h");
  },

  async scans(r) {
    await r.mset(new Map(Array.from({ length: 250 }, (_, i) => [`scan:${i}`, i])));
    await r.hset("scan:hash", "a", 1);
    assert.equal(await r.dbsize(), 251);
    const all = async (options) => {
      const keys = new Set();
      for await (const page of r.scanStream(options)) page.forEach((key) => keys.add(key));
      return keys;
    };
    assert.equal((await all({})).size, 251);
    assert.equal((await all({ match: "scan:1?", count: 7 })).size, 10);
    assert.deepEqual([...(await all({ type: "hash" }))], ["scan:hash"]);
    assert.equal(await r.flushdb(), "OK");
    assert.equal(await r.flushall(), "OK");
    assert.equal(await r.dbsize(), 0);
  },

  async transactions(r) {
    assert.deepEqual(await r.multi().set("t", 1).incr("t").get("t").exec(), [
      [null, "OK"],
      [null, 2],
      [null, "2"],
    ]);
    const watcher = connect();
    await watcher.watch("t");
    await r.set("t", "other");
    assert.equal(await watcher.multi().set("t", "mine").exec(), null);
    await watcher.watch("t");
    await watcher.unwatch();
    assert.deepEqual(await watcher.multi().set("t", "mine").exec(), [[null, "OK"]]);
    const answers = await r.pipeline(Array.from({ length: 500 }, (_, i) => ["set", `t:${i}`, i])).exec();
    assert.ok(answers.every(([error, answer]) => error === null && answer === "OK"));
    await r.flushall();
  },

  async notifications(r) {
    const heard = [];
    const listener = connect();
    const all = new Promise((resolve) => {
      const hear = (channel, data) => heard.push(`${channel} ${data}`) === 3 && resolve();
      listener.on("message", hear);
      listener.on("pmessage", (_pattern, channel, data) => hear(channel, data));
    });
    await listener.psubscribe("__keyspace@0__:watched:*");
    await listener.subscribe("__keyevent@0__:del");
    await r.set("watched:a", 1);
    await r.set("unwatched", 1);
    await r.del("watched:a");
    await Promise.race([all, sleep(20_000)]);
    assert.deepEqual(heard.sort(), [
      "__keyevent@0__:del watched:a",
      "__keyspace@0__:watched:a del",
      "__keyspace@0__:watched:a set",
    ]);
    await r.flushall();
  },

  async credentials() {
    if (!PORTOLAN_USER) return;
    const stranger = connect({ password: "wrong", lazyConnect: true, retryStrategy: null });
    stranger.on("error", () => {}); // the rejection below reports the same
    await assert.rejects(stranger.ping());
  },
};

const r = connect();
await r.flushall();
for (const [name, part] of Object.entries(parts)) {
  await part(r);
  console.log(`ioredis: ${name}`);
}
for (const redis of opened) redis.disconnect();
