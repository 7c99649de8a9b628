// Sessions over three real sites, which are killed, suspended and cut off; without PORTOLAN_BIN, the rules alone.

import assert from "node:assert/strict";
import { connect, createServer, type Server, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Command, Redis } from "ioredis";
import { NoSite, Session, SessionError, type SessionOptions, Sites, UnknownOutcome } from "../src/index.js";
import { named } from "../src/errors.js";
import { isRead } from "../src/session.js";
import { BIN, Deployment, eventually, type Site } from "./deployment.js";

const FAR = { nearer: false };
const code = (wanted: string) => (error: unknown) => error instanceof SessionError && error.code === wanted;

test("a nearer site is clearly nearer", () => {
  const sites = new Sites(["a:1", "b:2", "c:3"]);
  const answers = (site: string, ...all: number[]) => all.forEach((ms) => sites.answered(site, ms));
  answers("a:1", 10, 10, 10, 10, 10);
  answers("b:2", 7.5, 7.5, 7.5, 7.5, 7.5);
  assert.equal(sites.nearerThan("a:1"), undefined, "not by enough");
  answers("b:2", 6, 90, 6, 6);
  assert.equal(sites.nearerThan("a:1"), "b:2", "one slow PING changes no median");
  assert.equal(sites.nearerThan("b:2"), undefined);
  assert.equal(sites.nearerThan("c:3"), undefined, "its own distance is unknown");
  const order = (last: string, silent?: string) => sites.inTurn(last, silent).map(({ site }) => site);
  assert.deepEqual(order("c:3"), ["c:3", "b:2", "a:1"]);
  assert.deepEqual(order("b:2", "b:2"), ["a:1", "c:3", "b:2"]);
  sites.failed("b:2");
  assert.equal(sites.nearerThan("a:1"), undefined);
});

test("reads are repeated, and cursors are not", () => {
  const read = (name: string, ...args: string[]) => isRead(new Command(name, args));
  assert.ok(read("get", "k") && read("scan", "0") && read("hscan", "h", "0"));
  assert.ok(!read("set", "k", "v") && !read("scan", "17") && !read("hscan", "h", "17"));
});

test("errors are named by their code", () => {
  for (const one of ["BEHIND", "UNORDERED", "LOST", "BADTOKEN"]) assert.ok(code(one)(named(new Error(`${one} why`))));
  assert.ok(named(new Error("UNKNOWN why")) instanceof UnknownOutcome);
  const plain = new Error("ERR BEHIND");
  assert.equal(named(plain), plain);
});

test("addresses may be wrong", () => {
  assert.deepEqual(new Sites({ x: ["[::1]:7"] }).nodes("x"), [{ site: "x", host: "::1", port: 7 }]);
  for (const wrong of [[], ["host"], ["host:port"], { x: [] }]) assert.throws(() => new Sites(wrong), RangeError);
});

test("no site answers", async () => {
  const session = new Session(["127.0.0.1:1", "127.0.0.1:2"], { deadlineMs: 300 });
  await assert.rejects(session.set("car:1", "x"), NoSite);
  session.disconnect();
});

/**
 * A server that answers GET and SET with this, and whatever else as a site would; a request by one of these
 * names, and all behind it, so many milliseconds later.
 */
async function answersWith(
  answer: string | Record<string, string>,
  token = "T1",
  delaysMs: Record<string, number> = {},
): Promise<{ address: string; server: Server; connections: Set<Socket> }> {
  const connections = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    connections.add(socket);
    socket.on("close", () => connections.delete(socket));
    socket.on("error", () => undefined);
    let delayMs = 0;
    // As a site, it answers what was asked before.
    socket.on("end", () => setTimeout(() => socket.end(), delayMs));
    socket.on("data", (data) => {
      for (const [, name] of data.toString().matchAll(/\*\d+\r\n\$\d+\r\n([\w.]+)\r\n/g)) {
        const asked = name!.toLowerCase();
        const value = typeof answer === "string" ? answer : answer[asked];
        const isAsked = value !== undefined && /^(get|set)$/.test(asked);
        const text = isAsked ? value : /token$/.test(asked) ? `$${token.length}\r\n${token}\r\n` : "+OK\r\n";
        delayMs = delaysMs[asked] ?? delayMs;
        // Of equal delays the timers go off in their order.
        if (delayMs > 0) setTimeout(() => socket.writable && socket.write(text), delayMs);
        else socket.write(text);
      }
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return { address: `127.0.0.1:${port}`, server, connections };
}

test("a site that does not serve comes last", async () => {
  const leaves = await answersWith("-CLUSTERDOWN it leaves\r\n");
  const serves = await answersWith("$1\r\nx\r\n");
  const sites = new Sites({ a: leaves.address, b: serves.address }, {}, FAR);
  const session = new Session(sites, { deadlineMs: 5_000 });
  assert.equal(await session.get("car:1"), "x");
  assert.deepEqual([session.site, session.sessionStats.repeats], ["b", 1]);
  session.disconnect();
  for (const { server } of [leaves, serves]) server.close();
});

test("an answer on a connection that was left is lost", async () => {
  const refuses = { get: "$3\r\nold\r\n", set: "-CLUSTERDOWN it leaves\r\n" };
  const leaves = await answersWith(refuses, "TA", { set: 50, get: 300 });
  const serves = await answersWith({ get: "$3\r\nnew\r\n", set: "+OK\r\n" }, "TB");
  const session = new Session(new Sites({ a: leaves.address, b: serves.address }, {}, FAR));
  await session.ping();
  const written = session.set("car:1", "x");
  await new Promise(setImmediate);
  const read = session.get("plan:9");
  assert.equal(await written, "OK");
  assert.deepEqual([session.site, session.token], ["b", "TB"]);
  assert.equal(await read, "new");
  assert.deepEqual([session.site, session.token], ["b", "TB"]);
  session.disconnect();
  for (const { server } of [leaves, serves]) server.close();
});

test("a closed session does not connect again", async () => {
  const silent = await answersWith("", "T1", { get: 200 });
  let connected = 0;
  silent.server.on("connection", () => void (connected += 1));
  const session = new Session(new Sites([silent.address], {}, FAR), { deadlineMs: 500 });
  await session.ping();
  const read = session.get("car:1");
  await sleep(20);
  session.disconnect();
  await assert.rejects(read, /Connection is closed/);
  assert.equal(connected, 1);
  silent.server.close();
});

test("a session that is closed while it moves keeps no connection", async () => {
  // It is closed while the session attaches, or while a request is on its way at the site before.
  const attaches = [{}, { "portolan.attach": 100 }];
  const drains = [{ get: 100 }, {}];
  const cases = [["disconnect", attaches], ["disconnect", drains], ["quit", attaches], ["quit", drains]] as const;
  for (const [how, delays] of cases) {
    const [a, b] = await Promise.all(delays.map((one) => answersWith("$1\r\nx\r\n", "T1", one)));
    assert.ok(a && b);
    const session = new Session(new Sites({ a: a.address, b: b.address }, {}, FAR));
    await session.ping();
    const all = [session.moveTo("b"), session.get("car:1")];
    await sleep(50);
    await session[how]();
    // Either may have ended before the session was closed.
    for (const one of await Promise.allSettled(all)) {
      if (one.status === "rejected") assert.match(one.reason.message, /Connection is closed/);
    }
    await eventually(() => assert.deepEqual([a.connections.size, b.connections.size], [0, 0]), 1_000);
    for (const { server } of [a, b]) server.close();
  }
});

test("over three sites", { skip: BIN ? false : "PORTOLAN_BIN is not set" }, async (t) => {
  let all: Deployment;
  let [a, b, c]: Site[] = [];
  before(async () => {
    all = await Deployment.start();
    [a, b, c] = all.sites;
  });
  after(() => all.stop());

  const open: Session[] = [];
  // A site on a slow machine takes its time. Where one is to be silent, two seconds are enough.
  const session = (sites: Site[], options: SessionOptions = {}, socketTimeout = 60_000) => {
    const names = Object.fromEntries(sites.map((site) => [site.name, site.address]));
    const one = new Session(new Sites(names, { socketTimeout }, FAR), { deadlineMs: 20_000, ...options });
    open.push(one);
    return one;
  };
  t.afterEach(async () => {
    for (const one of open.splice(0)) one.disconnect();
    await all.startAll();
  });

  await t.test("commands, pipelines and transactions bring tokens", async () => {
    const one = session(all.sites);
    assert.equal(one.token, undefined);
    const tokens = new Set<string>();
    await one.set("car:1", "Pier 39");
    tokens.add(one.token!);
    assert.deepEqual(await one.pipeline().set("car:2", "x").get("car:1").exec(), [[null, "OK"], [null, "Pier 39"]]);
    tokens.add(one.token!);
    assert.deepEqual(await one.multi().set("car:3", "x").get("car:1").exec(), [[null, "OK"], [null, "Pier 39"]]);
    tokens.add(one.token!);
    assert.deepEqual([tokens.size, one.token!.length], [3, 71]);
    const [got, refused] = await Promise.allSettled([one.get("car:1"), one.incr("car:1")]);
    assert.deepEqual([got.status, refused.status], ["fulfilled", "rejected"]);
    assert.deepEqual(await one.getBuffer("car:1"), Buffer.from("Pier 39"));
    await assert.rejects(one.subscribe("x"), /belongs to no session/);
    await assert.rejects(one.watch("car:1"), /belongs to no session/);
    assert.equal(one.sessionStats.attaches, 0);
  });

  await t.test("a session moves and finds its own", async () => {
    const one = session(all.sites);
    for (let turn = 0; turn < 30; turn++) {
      const site = "abc"[turn % 3]!;
      // What is asked meanwhile is answered by the old site, or waits.
      await Promise.all([one.moveTo(site), one.set("car:moves", turn)]);
      assert.deepEqual([one.site, await one.get("car:moves")], [site, `${turn}`]);
    }
    assert.equal(one.sessionStats.moves, 30);
    assert.equal(await session([c!], { token: one.token! }).get("car:moves"), "29");
  });

  await t.test("the site is killed in the middle", async () => {
    const one = session([b!, c!, a!], { deadlineMs: 5_000 });
    await one.set("car:killed", 0);
    assert.equal(one.site, "b");
    // What the session may read: what it has written last. A write without an answer takes its place when the
    // site that has it is back: at any time, over newer ones.
    let last = 0;
    const late = new Set<number>();
    let [unknown, killed]: [number, Promise<void> | undefined] = [0, undefined];
    let victim: Site | undefined;
    for (let count = 1; count < 400; count++) {
      if (count === 100 || count === 250) {
        victim = all.sites.find(({ name }) => name === one.site)!;
        const { kill } = victim;
        killed = sleep(10).then(() => kill.call(victim));
      }
      if (count === 200 || count === 350) {
        await killed;
        victim!.start();
      }
      let seen: number | undefined;
      while (seen === undefined) {
        try {
          if (last !== count && !late.has(count)) {
            await one.set("car:killed", count);
            last = count;
          }
          seen = Number(await one.get("car:killed"));
        } catch (error) {
          if (error instanceof UnknownOutcome) {
            late.add(count);
            unknown += 1;
          } else {
            // What the session wrote is at the site that is away: this application begins anew.
            assert.ok(code("BEHIND")(error) || code("UNORDERED")(error), String(error));
            one.beginAnew();
            for (let n = 0; n <= count; n++) late.add(n);
          }
        }
      }
      assert.ok(seen === last || late.has(seen), `${seen}, not ${last}`);
    }
    assert.ok(unknown <= 2, "one for each death");
    assert.ok(one.sessionStats.attaches >= 1);
  });

  await t.test("a site that answers no more is left, and a write there is unknown", async () => {
    // Not the root: it alone has the places of what was written last.
    const one = session([b!, c!], {}, 2_000);
    await one.set("car:silent", "before");
    await eventually(() => b!.ordered());
    await b!.suspend();
    try {
      const [written, read] = await Promise.allSettled([one.set("car:silent", "after"), one.get("car:silent")]);
      assert.ok(written.status === "rejected" && written.reason instanceof UnknownOutcome, String(written));
      assert.deepEqual(read, { status: "fulfilled", value: "before" }, "it was not repeated elsewhere");
      assert.deepEqual([one.site, one.sessionStats.repeats], ["c", 1]);
    } finally {
      b!.resume();
    }
    await eventually(async () => assert.equal(await one.get("car:silent"), "after"));
  });

  await t.test("a site that is cut off lacks what was seen", async () => {
    await c!.kill();
    const one = session([b!]);
    await one.set("car:cut", "seen");
    await eventually(() => b!.ordered());
    assert.equal(await one.get("car:cut"), "seen");
    await Promise.all([a!.kill(), b!.kill()]);
    c!.start();
    const plain = new Redis(c!.redis, { retryStrategy: () => 50, maxRetriesPerRequest: null });
    plain.on("error", () => {});
    // It answers PINGs before it serves.
    await eventually(() => plain.get("car:cut"));
    plain.disconnect();
    const moved = session([c!], { token: one.token!, deadlineMs: 1_000 });
    const began = performance.now();
    await assert.rejects(moved.get("car:cut"), code("BEHIND"));
    assert.ok(performance.now() - began < 6_000);
    // One that is given more time than an answer may take otherwise.
    await assert.rejects(moved.moveTo("c", 2_500), code("BEHIND"));
    // Wait: the session is kept, and goes on once the others are back.
    a!.start(), b!.start();
    assert.equal(await eventually(() => moved.get("car:cut")), "seen");
  });

  await t.test("a token of elsewhere is refused until the session begins anew", async () => {
    const one = session(all.sites, { token: "AgUFBQ" });
    for (let turn = 0; turn < 2; turn++) await assert.rejects(one.get("car:1"), code("BADTOKEN"));
    one.beginAnew();
    await one.get("car:1");
    assert.equal(one.token!.length, 71);
  });

  await t.test("a nearer site takes over", async () => {
    const ways = await Promise.all(all.sites.map((site) => wayTo(site.redis)));
    t.after(() => ways.forEach((way) => way.server.close()));
    const names = Object.fromEntries(all.sites.map(({ name }, nth) => [name, ways[nth]!.address]));
    const roaming = { pingEveryMs: 50, stayMs: 1_000, share: 0.5 };
    const one = new Session(new Sites(names, {}, roaming), { deadlineMs: 20_000 });
    open.push(one);
    const delays = (...all: number[]) => all.forEach((ms, nth) => (ways[nth]!.delayMs = ms));
    let turn = 0;
    const drivesUntil = (site: string) =>
      eventually(async () => {
        turn += 1;
        await one.set("car:near", turn);
        assert.equal(await one.get("car:near"), String(turn));
        assert.equal(one.site, site);
      }, 30_000);
    delays(0, 60, 70);
    await drivesUntil("a");
    delays(80, 0, 70);
    await drivesUntil("b");
    one.disconnect();
  });
});

/** A way to a port that takes time. */
async function wayTo(port: number): Promise<{ delayMs: number; address: string; server: Server }> {
  const way = { delayMs: 0, address: "", server: createServer().unref() };
  const carry = (from: Socket, to: Socket, delays: boolean) => {
    from.setNoDelay(true);
    // Of equal delays the timers go off in their order.
    from.on("data", (data) => {
      setTimeout(() => to.writable && to.write(data), delays ? way.delayMs : 0);
    });
    from.on("close", () => to.destroy()).on("error", () => {});
  };
  way.server.on("connection", (near) => {
    const far = connect(port, "127.0.0.1");
    carry(near, far, true);
    carry(far, near, false);
  });
  await new Promise<void>((resolve) => void way.server.listen(0, "127.0.0.1", resolve));
  way.address = `127.0.0.1:${(way.server.address() as { port: number }).port}`;
  return way;
}
