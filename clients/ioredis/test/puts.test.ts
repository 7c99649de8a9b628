// Puts that go on at other sites: each has one effect.

import assert from "node:assert/strict";
import { createServer, type Server, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { Command, Redis } from "ioredis";
import { Session, Sites, UnknownOutcome } from "../src/index.js";
import { isPut } from "../src/puts.js";
import { BIN, Deployment, eventually, type Site } from "./deployment.js";

const ELSEWHERE = { nearer: false, elsewhere: true };

/** Answers a request, or ends the connection. What a connection is asked behind it is answered later. */
type Answers = (words: string[]) => string | undefined | Promise<string | undefined>;

interface Scripted {
  address: string;
  server: Server;
  /** What came, but for what a connection begins with. */
  asked: string[];
}

/** A site without a program; `answers`: to puts with a number; `others`: to what is answered in its own way. */
async function scripted(answers: Answers, others: Answers = () => undefined): Promise<Scripted> {
  const asked: string[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    let answered = Promise.resolve();
    socket.on("data", (data) => {
      for (const words of requests(data.toString())) {
        const name = words[0]!.toLowerCase();
        if (/^(client|hello|info|select)$/.test(name)) {
          socket.write("+OK\r\n");
          continue;
        }
        asked.push(words.join(" "));
        const token = `T${asked.length}`;
        const answer = name === "portolan.token" ? `$${token.length}\r\n${token}\r\n` : "+OK\r\n";
        const text = name === "portolan.once" ? answers(words) : (others(words) ?? answer);
        answered = answered.then(async () => {
          const line = await text;
          if (line === undefined) socket.destroy();
          else socket.write(line);
        });
        if (text === undefined) return;
      }
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return { address: `127.0.0.1:${port}`, server: server.unref(), asked };
}

/** Requests that came as a whole. */
function* requests(text: string): Generator<string[]> {
  const lines = text.split("\r\n");
  for (let at = 0; lines[at]?.startsWith("*"); ) {
    const count = Number(lines[at]!.slice(1));
    yield Array.from({ length: count }, (_, nth) => lines[at + 2 + 2 * nth]!);
    at += 1 + 2 * count;
  }
}

/** Without questions for the token. */
const puts = ({ asked }: Scripted) => asked.filter((one) => one !== "portolan.token");

test("only what overwrites its keys is a put", () => {
  const put = (name: string, ...args: (string | Buffer)[]) => isPut(new Command(name, args));
  assert.ok(put("set", "k", "v") && put("SET", "k", Buffer.from("v")) && put("mset", "a", "1", "b", "2"));
  for (const other of [["set", "k", "v", "EX", "9"], ["mset", "a"], ["append", "k", "v"], ["setnx", "k", "v"]]) {
    assert.ok(!put(other[0]!, ...other.slice(1)), other.join(" "));
  }
  assert.ok(put("set", "k".repeat(4_096), "v") && !put("set", "k".repeat(4_097), "v"));
  const queued = new Command("set", ["k", "v"]);
  queued.inTransaction = true;
  assert.ok(!isPut(queued));
});

test("the names of the sites are needed", () => {
  assert.throws(() => new Sites(["a:1", "b:2"], {}, ELSEWHERE), RangeError);
});

test("a put without an answer goes on at another site under its number", async () => {
  let number: string | undefined;
  const a = await scripted((words) => {
    number ??= words[1];
    return words[3] === "AGAIN" ? "-CLUSTERDOWN it leaves\r\n" : undefined;
  });
  const b = await scripted(() => "+OK\r\n");
  const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE));
  await session.ping();
  const token = session.token;
  const all = await Promise.all([session.set("car:1", "x"), session.mset({ "car:2": "y" }), session.get("car:1")]);
  assert.deepEqual(all, ["OK", "OK", "OK"]);
  assert.deepEqual([session.site, session.token], ["b", "T8"]);
  const [client, first] = number!.split("-");
  const next = `${client}-${Number(first) + 1}`;
  assert.deepEqual(puts(a).slice(1), [
    `portolan.once ${number} a OPTIONAL set car:1 x`,
    `PORTOLAN.ATTACH ${token} LATER`,
    `portolan.once ${number} a AGAIN set car:1 x`,
  ]);
  assert.deepEqual(puts(b), [
    `PORTOLAN.ATTACH ${token} LATER`,
    `portolan.once ${number} a AGAIN set car:1 x`,
    `portolan.once ${next} a AGAIN mset car:2 y`,
    "PORTOLAN.ATTACH T5 WITHIN 500",
    "get car:1",
  ]);
  session.disconnect();
  for (const { server } of [a, b]) server.close();
});

const REFUSES = "-CLUSTERDOWN it leaves\r\n";

/** What is waited for until it is there. */
function gate(): { opens: Promise<void>; open: () => void } {
  let open = () => {};
  return { opens: new Promise<void>((resolve) => (open = resolve)), open: () => open() };
}

test("a connection that was admitted before a put was answered takes the put's token", async () => {
  const [isSent, isOpened, isMade] = [gate(), gate(), gate()];
  const a = await scripted(
    () => (isSent.open(), new Promise(() => {})),
    ([name]) => (name === "get" ? isSent.opens.then(() => REFUSES) : undefined),
  );
  // It has only then what the session had seen before.
  const lags: Answers = ([, , how]) => {
    if (how !== "WITHIN") return undefined;
    isOpened.open();
    return isMade.opens.then(() => "+OK\r\n");
  };
  const b = await scripted(() => isOpened.opens.then(() => "+OK\r\n"), lags);
  const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE), { deadlineMs: 60_000 });
  // Its tokens are to be others than those of `b`.
  await session.ping();
  await session.ping();
  const read = session.get("car:1");
  await new Promise(setImmediate);
  assert.equal(await session.set("car:1", "x"), "OK");
  const made = session.token;
  isMade.open();
  await read;
  assert.deepEqual(puts(b).slice(-2), [`PORTOLAN.ATTACH ${made} WITHIN 500`, "get car:1"]);
  session.disconnect();
  for (const { server } of [a, b]) server.close();
});

test("a move takes along the put that is asked for meanwhile", async () => {
  const [isThere, isHeld, isMade] = [gate(), gate(), gate()];
  // The answer to the read is the last one.
  const a = await scripted(
    ([, , , how]) => (how === "AGAIN" ? REFUSES : isHeld.opens.then(() => undefined)),
    ([name]) => (name === "get" ? isThere.opens.then(() => "+OK\r\n") : undefined),
  );
  let admits = 0;
  const b = await scripted(
    () => "+OK\r\n",
    ([, , how]) => {
      if (how !== "WITHIN") return undefined;
      admits += 1;
      if (admits === 1) isThere.open();
      return admits === 1 ? undefined : isMade.opens.then(() => "+OK\r\n");
    },
  );
  const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE), { deadlineMs: 60_000 });
  await session.ping();
  const read = session.get("car:1");
  await new Promise(setImmediate);
  const written = session.set("car:1", "x");
  const moved = session.moveTo("b");
  await read;
  isHeld.open();
  assert.equal(await written, "OK");
  const made = session.token;
  isMade.open();
  await moved;
  await session.get("car:1");
  assert.deepEqual(puts(b).slice(-2), [`PORTOLAN.ATTACH ${made} WITHIN 2000`, "get car:1"]);
  session.disconnect();
  for (const { server } of [a, b]) server.close();
});

test("a move while the session opens a connection is not undone by that", async () => {
  const [isMoved, isAsked] = [gate(), gate()];
  const held = isMoved.opens.then(() => "+OK\r\n");
  const a = await scripted(() => "+OK\r\n", ([, , how]) => (how === "WITHIN" ? held : undefined));
  const late: Answers = ([name]) => (name === "del" ? isAsked.opens.then(() => ":1\r\n") : undefined);
  const b = await scripted(() => "+OK\r\n", late);
  const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE), { token: "T0" });
  const written = session.del("car:1");
  await eventually(() => assert.equal(a.asked.length, 1));
  await session.moveTo("b");
  await eventually(() => assert.ok(b.asked.includes("del car:1")));
  isMoved.open();
  // It came too late, and is closed.
  await eventually(async () => {
    const count = await new Promise((resolve) => a.server.getConnections((_, count) => resolve(count)));
    assert.equal(count, 0);
  });
  isAsked.open();
  assert.equal(await written, 1);
  assert.deepEqual([session.site, puts(a).length], ["b", 1]);
  session.disconnect();
  for (const { server } of [a, b]) server.close();
});

test("a put is not asked for before a write that was refused", async () => {
  // Of one turn, and of two.
  for (const turns of [1, 2]) {
    const isSent = gate();
    const a = await scripted(([, , , , , , value]) => {
      if (value !== "later") return isSent.opens.then(() => REFUSES);
      isSent.open();
      return turns === 1 ? undefined : new Promise(() => {});
    });
    const b = await scripted(() => "+OK\r\n");
    const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE));
    await session.ping();
    const first = session.set("car:1", "sooner");
    if (turns === 2) await new Promise(setImmediate);
    const [sooner, later] = await Promise.allSettled([first, session.set("car:1", "later")]);
    assert.equal(sooner.status, "fulfilled");
    assert.ok(later.status === "rejected" && later.reason instanceof UnknownOutcome);
    assert.match(puts(b).slice(1).join(), /^portolan.once \S+ b OPTIONAL set car:1 sooner$/);
    session.disconnect();
    for (const { server } of [a, b]) server.close();
  }
});

test("without an answer before the deadline it is unknown, and at once where it had no number", async () => {
  const a = await scripted(() => undefined);
  const b = await scripted(() => "-UNKNOWN the outcome is unknown\r\n");
  const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE), { deadlineMs: 2_000 });
  await assert.rejects(session.set("car:1", "x"), UnknownOutcome);
  assert.ok(puts(b).length > 1, "it was asked for again until then");
  await session.moveTo("b");
  // Asked for, it would come after what was made behind it.
  const [followed, last] = await Promise.allSettled([session.set("car:1", "x"), session.del("car:1")]);
  assert.ok(followed.status === "rejected" && followed.reason instanceof UnknownOutcome);
  assert.equal(last.status, "fulfilled");
  assert.equal(puts(b).at(-1), "del car:1");
  session.disconnect();
  const c = await scripted(() => "-NOTONCE it is of another kind\r\n");
  const other = new Session(new Sites({ a: a.address, c: c.address }, {}, ELSEWHERE), { deadlineMs: 60_000 });
  await assert.rejects(other.set("bus:1", "x"), UnknownOutcome);
  other.disconnect();
  for (const { server } of [a, b, c]) server.close();
});

test("what is refused for its number is made without one, unless something follows it", async () => {
  let answer = "-TRYAGAIN too many wait\r\n";
  const a = await scripted(() => answer);
  const b = await scripted(() => "+OK\r\n");
  const session = new Session(new Sites({ a: a.address, b: b.address }, {}, ELSEWHERE));
  const all = [session.set("car:1", "x"), session.set("car:2", "y"), session.get("car:1")];
  assert.deepEqual(await Promise.all(all), ["OK", "OK", "OK"]);
  assert.deepEqual(puts(a).slice(2), ["get car:1", "set car:1 x", "set car:2 y", "get car:1"]);
  // It refuses numbers: only a put that nothing follows has one.
  assert.deepEqual(await Promise.all([session.set("car:3", "x"), session.del("car:3")]), ["OK", "OK"]);
  assert.deepEqual(puts(a).slice(6), ["set car:3 x", "del car:3"]);
  answer = "+OK\r\n";
  await session.set("car:4", "x");
  assert.match(puts(a).at(-1)!, /^portolan.once .* OPTIONAL set car:4 x$/);
  // Made again it would come after what was asked behind it.
  answer = "-TRYAGAIN too many wait\r\n";
  const followed = await Promise.allSettled([session.set("car:5", "x"), session.del("car:5")]);
  assert.deepEqual(followed.map(({ status }) => status), ["rejected", "fulfilled"]);
  assert.equal(puts(a).at(-1), "del car:5");
  // A site that does not know the command, or the name, is not asked again.
  answer = "-ERR unknown command\r\n";
  await session.set("car:6", "x");
  answer = "+OK\r\n";
  await session.set("car:7", "x");
  assert.deepEqual(puts(a).slice(-2), ["set car:6 x", "set car:7 x"]);
  assert.deepEqual(puts(b), []);
  session.disconnect();
  for (const { server } of [a, b]) server.close();
});

test("over three sites", { skip: BIN ? false : "PORTOLAN_BIN is not set" }, async (t) => {
  let all: Deployment;
  let [a, b, c]: Site[] = [];
  before(async () => {
    all = await Deployment.start();
    [a, b, c] = all.sites;
  });
  after(() => all.stop());

  const shows = async (site: Site, key: string, value: string) => {
    const plain = new Redis(site.redis, { retryStrategy: () => 50, maxRetriesPerRequest: null });
    plain.on("error", () => {});
    await eventually(async () => assert.equal(await plain.get(key), value));
    plain.disconnect();
  };

  /** Before its own write has a place, or after: its site dies with the answers. */
  for (const [how, isOrdered] of [["offered", true], ["kept", false]] as const) {
    await t.test(`a site dies after it took puts, which it has ${how}`, async () => {
      const way = await answersLost(b!.redis);
      t.after(() => way.server.close());
      // A site on a slow machine takes its time.
      const sites = new Sites({ b: way.address, c: c!.address }, { socketTimeout: 60_000 }, ELSEWHERE);
      const session = new Session(sites, { deadlineMs: 120_000 });
      await session.set("car:0", "x");
      assert.equal(session.site, "b");
      await eventually(() => b!.ordered());
      if (!isOrdered) await a!.kill();
      const dies = async () => {
        if (isOrdered) await eventually(() => b!.ordered());
        await b!.kill();
        a!.start();
      };
      const died = way.loses().then(dies);
      const made = [session.set("car:1", "once"), session.mset("car:2", "once", "car:3", "once")];
      assert.deepEqual(await Promise.all(made), ["OK", "OK"]);
      await died;
      assert.equal(session.site, "c");
      assert.deepEqual(await session.mget("car:1", "car:2", "car:3"), ["once", "once", "once"]);
      assert.deepEqual(await Promise.all([session.set("car:1", "later"), session.del("car:2")]), ["OK", 1]);
      // It is back, with its own attempts.
      b!.start();
      await eventually(() => b!.ordered());
      await session.set("car:4", how);
      for (const site of [a!, b!, c!]) {
        await shows(site, "car:4", how);
        const plain = new Redis(site.redis);
        assert.deepEqual(await plain.mget("car:1", "car:2", "car:3"), ["later", null, "once"], site.name);
        plain.disconnect();
      }
      session.disconnect();
    });
  }

  await t.test("a put comes late to a site that was silent", async () => {
    const sites = new Sites({ b: b!.address, c: c!.address }, { socketTimeout: 1_000 }, ELSEWHERE);
    const session = new Session(sites, { deadlineMs: 120_000 });
    await eventually(() => session.set("car:silent", "before"));
    await eventually(() => session.moveTo("b", 10_000));
    await eventually(() => b!.ordered());
    await b!.suspend();
    try {
      assert.equal(await session.set("car:silent", "once"), "OK");
      assert.equal(session.site, "c");
      await session.set("car:silent", "later");
      await session.set("car:4", "silent");
    } finally {
      // What was sent to it is there yet.
      b!.resume();
    }
    await eventually(() => b!.ordered());
    for (const site of [a!, b!, c!]) {
      await shows(site, "car:4", "silent");
      await shows(site, "car:silent", "later");
    }
    session.disconnect();
  });
});

/** A way to a port. Once it loses answers, the next one ends the connection instead, and all others. */
async function answersLost(port: number): Promise<{ address: string; server: Server; loses: () => Promise<void> }> {
  const { connect } = await import("node:net");
  let lost: (() => void) | undefined;
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [one, other] of [[near, far], [far, near]] as const) {
      sockets.add(one);
      one.setNoDelay(true);
      one.on("error", () => undefined);
      one.on("close", () => void (sockets.delete(one), other.destroy()));
    }
    near.on("data", (data) => void (far.writable && far.write(data)));
    far.on("data", (data) => {
      if (lost === undefined) return void (near.writable && near.write(data));
      for (const socket of sockets) socket.destroy();
      lost();
    });
  }).unref();
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const { port: own } = server.address() as { port: number };
  const loses = () =>
    new Promise<void>((resolve) => {
      lost = () => {
        server.close();
        resolve();
      };
    });
  return { address: `127.0.0.1:${own}`, server, loses };
}
