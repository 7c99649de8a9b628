import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  KEYS_MAX,
  type KeyEntry,
  keyId,
  LOOKS_MAX,
  pack,
  SENT_BUCKETS_MAX,
  SERVERS_MAX,
  Sketch,
  type SpreadEntry,
  SPREADS_MAX,
} from "../src/sketch.js";

interface Vectors {
  ids: { key_hex: string; text?: string; id: string }[];
  sketches: {
    client: string;
    duration_ms: number;
    servers: [string, number, number][];
    uses: [number, string, number, number][];
    spreads?: SpreadEntry[];
    packed: string;
  }[];
}

const file = process.env["PORTOLAN_VECTORS"] ?? new URL("../../../vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vectors;
const idOf = (key: string | Buffer) => {
  const { high, low } = keyId(key, { high: 7, low: 7 });
  return high.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
};

test("ids are those of the other languages", () => {
  for (const { key_hex, text, id } of vectors.ids) {
    assert.equal(idOf(Buffer.from(key_hex, "hex")), id, key_hex);
    if (text !== undefined) assert.equal(idOf(text), id, text);
  }
});

test("sketches are packed as the other languages do", () => {
  for (const { client, duration_ms, servers, uses, spreads, packed } of vectors.sketches) {
    const keys = uses.map(([slot, id, times, bytes]): KeyEntry => {
      return [slot, parseInt(id.slice(0, 8), 16), parseInt(id.slice(8), 16), times, bytes];
    });
    const slots = new Set(keys.map(([slot]) => slot)).size;
    const body = pack(client, duration_ms, servers, slots, keys.length, keys, spreads);
    assert.equal(body.toString("hex"), packed);
  }
});

/** The buckets (index, count) of a sketch of version 2 without keys, by server. */
function unpackSpreads(body: Buffer): Map<string, [number, number][]> {
  assert.equal(body.toString("latin1", 0, 4), "PSK2");
  let at = 9 + (body[8] as number);
  const serverCount = body.readUInt16LE(at);
  at += 2;
  for (let nth = 0; nth < serverCount; nth++) at += 1 + (body[at] as number) + 8;
  assert.equal(body.readUInt16LE(at), 0);
  const count = body.readUInt16LE(at + 2);
  at += 4;
  const spreads = new Map<string, [number, number][]>();
  for (let nth = 0; nth < count; nth++) {
    const end = at + 1 + (body[at] as number);
    const name = body.toString("utf8", at + 1, end);
    const buckets: [number, number][] = [];
    for (let row = 0; row < body.readUInt16LE(end); row++) {
      const from = end + 2 + 6 * row;
      buckets.push([body.readInt16LE(from), body.readUInt32LE(from + 2)]);
    }
    spreads.set(name, buckets);
    at = end + 2 + 6 * buckets.length;
  }
  assert.equal(at, body.length);
  return spreads;
}

test("latencies are counted as distributions where quantiles are asked for", () => {
  const sketch = new Sketch("app", true);
  const server = sketch.server("10.0.0.1:1");
  const answer = (times: number, us: number) => {
    for (let nth = 0; nth < times; nth++) sketch.answered(server, us);
  };
  answer(90, 1_000);
  answer(10, 11_000);
  answer(1, 1);
  answer(1, 1e9);
  const rows = unpackSpreads(sketch.take(1_000)).get("10.0.0.1:1");
  assert.deepEqual(rows, [[-115, 1], [0, 90], [60, 10], [275, 1]]);
  assert.equal(unpackSpreads(sketch.take(1_000)).size, 0);
  // Every bucket once: the lowest are added up.
  for (let bucket = -115; bucket <= 275; bucket++) {
    answer(1, Math.round(1_000 * (1.02 / 0.98) ** (bucket - 0.5)));
  }
  const all = unpackSpreads(sketch.take(1_000)).get("10.0.0.1:1") as [number, number][];
  assert.deepEqual([all.length, all.at(-1)], [SENT_BUCKETS_MAX, [275, 1]]);
  assert.equal(all.reduce((sum, [, count]) => sum + count, 0), 391);
  assert.equal((all[0] as [number, number])[1], 391 - SENT_BUCKETS_MAX + 1);
  for (let nth = 0; nth < SPREADS_MAX + 9; nth++) {
    sketch.answered(sketch.server(`10.0.1.${nth}:1`), 5);
  }
  assert.equal(unpackSpreads(sketch.take(1_000)).size, SPREADS_MAX);
});

interface Unpacked {
  servers: Map<string, [number, number]>;
  uses: { slot: number; id: string; uses: number; bytes: number }[];
}

export function unpack(body: Buffer): Unpacked {
  const servers = new Map<string, [number, number]>();
  let at = 9 + (body[8] as number);
  const serverCount = body.readUInt16LE(at);
  at += 2;
  for (let nth = 0; nth < serverCount; nth++) {
    const end = at + 1 + (body[at] as number);
    const name = body.toString("utf8", at + 1, end);
    servers.set(name, [body.readUInt32LE(end), body.readUInt32LE(end + 4)]);
    at = end + 8;
  }
  const slots = body.readUInt16LE(at);
  at += 2;
  const uses = [];
  for (let nth = 0; nth < slots; nth++) {
    const [slot, count] = [body.readUInt16LE(at), body.readUInt16LE(at + 2)];
    at += 4;
    for (let key = 0; key < count; key++, at += 16) {
      const id = body.readBigUInt64LE(at).toString(16).padStart(16, "0");
      const [times, bytes] = [body.readUInt32LE(at + 8), body.readUInt32LE(at + 12)];
      uses.push({ slot, id, uses: times, bytes });
    }
  }
  assert.equal(at, body.length);
  assert.equal(new Set(uses.map((one) => one.slot)).size, slots, "a slot comes once");
  return { servers, uses };
}

const id = (low: number) => ({ high: 0, low });

test("answers and uses are counted, and a window begins with none", () => {
  const sketch = new Sketch("app");
  const server = sketch.server("10.0.0.1:1");
  assert.equal(sketch.server("10.0.0.1:1"), server);
  sketch.answered(server, 100);
  sketch.answered(server, 300);
  sketch.answered(server, 0xffff_ffff);
  sketch.used(7, id(1), 10);
  sketch.used(7, id(1), 30);
  sketch.used(8, id(1), 5);
  sketch.sized(8, id(1), 6);
  sketch.sized(9, id(1), 6);
  const { servers, uses } = unpack(sketch.take(1_000));
  assert.deepEqual([...servers], [["10.0.0.1:1", [2, 400]]]);
  const found = uses.map((one) => [one.slot, one.uses, one.bytes]).sort();
  assert.deepEqual(found, [
    [7, 2, 30],
    [8, 1, 6],
  ]);
  const next = unpack(sketch.take(1_000));
  assert.deepEqual([next.servers.size, next.uses.length], [0, 0]);
});

test("heavy keys are kept, the rest by slot, and no use is lost", () => {
  const sketch = new Sketch("app");
  let total = 0;
  const use = (slot: number, low: number) => {
    total += sketch.weight;
    sketch.used(slot, id(low), 1);
  };
  for (let round = 0; round < 9; round++) for (let low = 0; low < 100; low++) use(1, low);
  for (let low = 1_000; low < 8_500; low++) use(low % 16_384, low);
  const { uses } = unpack(sketch.take(1_000));
  assert.ok(uses.filter((one) => one.slot === 1 && one.uses >= 9).length >= 100);
  assert.equal(uses.reduce((sum, one) => sum + one.uses, 0), total);
  assert.ok(uses.length <= KEYS_MAX + 16_384);
});

test("under load one use stands for many", () => {
  const sketch = new Sketch("app");
  const [all, counted] = [50 * LOOKS_MAX, { gap: 1, looks: 0 }];
  for (let nth = 0; nth < all; nth++) {
    counted.gap -= 1;
    if (counted.gap > 0) continue;
    counted.looks += 1;
    counted.gap = sketch.used(1, id(1), 1);
  }
  const [one] = unpack(sketch.take(1_000)).uses;
  assert.ok(counted.looks < 8 * LOOKS_MAX, `${counted.looks} uses were looked at`);
  const error = Math.abs((one?.uses ?? 0) / all - 1);
  assert.ok(error < 0.1, `${one?.uses} instead of ${all}`);
});

test("thousands of servers and tens of thousands of keys take less than 1 MB", () => {
  globalThis.gc?.();
  const buffers = () => process.memoryUsage().arrayBuffers;
  const before = buffers();
  const sketch = new Sketch("app");
  for (let nth = 0; nth < SERVERS_MAX + 10; nth++) {
    const place = sketch.server(`10.0.${nth >> 8}.${nth & 255}:6379`);
    assert.equal(place < 0, nth >= SERVERS_MAX);
    if (place >= 0) sketch.answered(place, 1_000);
  }
  for (let low = 0; low < 50_000; low++) sketch.used(low % 16_384, id(low), 100);
  const body = sketch.take(1_000);
  const bytes = buffers() - before;
  // Buffers of before may be freed meanwhile, so only the upper bound shows something.
  assert.ok(bytes < 1_000_000, `${bytes} bytes, ${body.length} of them packed`);
  assert.ok(body.length < 1 << 20);
  console.log(`counters and one packed sketch: ${bytes} bytes`);
});
