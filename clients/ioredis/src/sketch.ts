// What one window has seen: answers by server, uses by key. Counted in typed arrays, packed for the wire.
//
// Memory is bounded whatever the application does. Keys with many uses are kept one by one, the others
// are added up by slot; past `SERVERS_MAX` servers are not counted. Where quantiles are asked for, a DDSketch
// (Masson, Rim, Lee, VLDB 2019) is kept of each of the first `SPREADS_MAX` servers that answer in a window.

export const SLOTS = 16_384;
/** Places of the table of keys; a power of two. */
const PLACES = 4_096;
/** Keys that are kept one by one. Past that the lighter half is added up by slot. */
export const KEYS_MAX = (PLACES * 3) / 4;
export const SERVERS_MAX = 4_096;
/** Servers whose latencies are kept as a DDSketch, where that is asked for. */
export const SPREADS_MAX = 64;
/** Buckets that are sent of one server: the lowest beyond are added to the lowest that is sent. */
export const SENT_BUCKETS_MAX = 256;
/** Uses a window that are looked at; beyond, one in two, one in four …, each counted as that many. */
export const LOOKS_MAX = 10_000;

const U32_MAX = 0xffff_ffff;
/** The logarithm of γ = 1.02 / 0.98: quantiles are right within 2 %. */
const LOG_GAMMA = Math.log(1.02 / 0.98);
/** The bucket of 10 µs. */
const LOWEST = -115;
/** The bucket of a minute. */
const HIGHEST = 275;

/** A key's id, in two halves: there is no quick number of 64 bits. */
export interface KeyId {
  high: number;
  low: number;
}

/** 2^64 less the largest prime below it. */
const FOLD = 59;

/**
 * The id of a key, the same in all clients: a byte 1 and the key's bytes, as one big-endian number, modulo
 * the largest 64-bit prime. The result is written into `id`.
 */
export function keyId(key: string | Uint8Array, id: KeyId): KeyId {
  id.high = 0;
  id.low = 1;
  if (typeof key === "string") {
    for (let at = 0; at < key.length; at++) {
      const code = key.charCodeAt(at);
      if (code > 127) return keyId(Buffer.from(key), id);
      append(id, code);
    }
  } else {
    for (let at = 0; at < key.length; at++) append(id, key[at] as number);
  }
  if (id.high === U32_MAX && id.low >= U32_MAX - FOLD + 1) {
    id.high = 0;
    id.low -= U32_MAX - FOLD + 1;
  }
  return id;
}

/** One byte more: times 256, plus the byte, where what overflows 64 bits counts 59 each. */
function append(id: KeyId, byte: number): void {
  const over = id.high >>> 24;
  id.high = ((id.high << 8) | (id.low >>> 24)) >>> 0;
  let low = ((id.low << 8) >>> 0) + byte + over * FOLD;
  if (low > U32_MAX) {
    low -= U32_MAX + 1;
    id.high += 1;
    if (id.high > U32_MAX) {
      id.high = 0;
      low += FOLD;
    }
  }
  id.low = low;
}

/** Answers of one server: its name, how many, the sum of their latencies in µs. */
export type ServerEntry = readonly [name: string, answers: number, sumUs: number];
/** Uses of one key: its slot, the halves of its id, how many, bytes. */
export type KeyEntry = readonly [
  slot: number,
  high: number,
  low: number,
  uses: number,
  bytes: number,
];

/** The latencies of one server: its name, buckets of index and count, ascending. */
export type SpreadEntry = readonly [name: string, buckets: readonly (readonly [number, number])[]];

/**
 * A sketch as `portolan place` reads it. The keys of one slot come behind each other. With spreads it is of
 * version 2.
 */
export function pack(
  client: string,
  durationMs: number,
  servers: readonly ServerEntry[],
  slotCount: number,
  keyCount: number,
  keys: Iterable<KeyEntry>,
  spreads?: readonly SpreadEntry[],
): Buffer {
  const names = servers.map(([name]) => Buffer.from(name));
  const name = Buffer.from(client);
  const namesLength = names.reduce((sum, one) => sum + one.length, 0);
  const head = 4 + 4 + 1 + name.length + 2 + names.length * 9 + namesLength + 2;
  const length = head + slotCount * 4 + keyCount * 16;
  const tail = spreads === undefined ? Buffer.alloc(0) : packSpreads(spreads);
  const out = Buffer.alloc(length + tail.length);
  let at = out.write(spreads === undefined ? "PSK1" : "PSK2", "latin1");
  at = out.writeUInt32LE(durationMs, at);
  at = out.writeUInt8(name.length, at);
  at += name.copy(out, at);
  at = out.writeUInt16LE(servers.length, at);
  servers.forEach(([, answers, sumUs], nth) => {
    const text = names[nth] as Buffer;
    at = out.writeUInt8(text.length, at);
    at += text.copy(out, at);
    at = out.writeUInt32LE(answers, at);
    at = out.writeUInt32LE(sumUs, at);
  });
  at = out.writeUInt16LE(slotCount, at);
  let [slotAt, last, ofSlot] = [at, -1, 0];
  for (const [slot, high, low, uses, bytes] of keys) {
    if (slot !== last) {
      [slotAt, last, ofSlot] = [at, slot, 0];
      at = out.writeUInt16LE(slot, at) + 2;
    }
    ofSlot += 1;
    out.writeUInt16LE(ofSlot, slotAt + 2);
    at = out.writeUInt32LE(low, at);
    at = out.writeUInt32LE(high, at);
    at = out.writeUInt32LE(uses, at);
    at = out.writeUInt32LE(bytes, at);
  }
  tail.copy(out, at);
  return out;
}

function packSpreads(spreads: readonly SpreadEntry[]): Buffer {
  const size = ([name, buckets]: SpreadEntry) => 1 + Buffer.byteLength(name) + 2 + 6 * buckets.length;
  const out = Buffer.alloc(spreads.reduce((sum, one) => sum + size(one), 2));
  let at = out.writeUInt16LE(spreads.length);
  for (const [name, buckets] of spreads) {
    const text = Buffer.from(name);
    at = out.writeUInt8(text.length, at);
    at += text.copy(out, at);
    at = out.writeUInt16LE(buckets.length, at);
    for (const [index, count] of buckets) {
      at = out.writeInt16LE(index, at);
      at = out.writeUInt32LE(count, at);
    }
  }
  return out;
}

/** Counts. */
export class Sketch {
  readonly names: string[] = [];
  readonly #answers = new Uint32Array(SERVERS_MAX);
  readonly #sumsUs = new Uint32Array(SERVERS_MAX);
  readonly #high = new Uint32Array(PLACES);
  readonly #low = new Uint32Array(PLACES);
  readonly #uses = new Uint32Array(PLACES);
  readonly #sizes = new Uint32Array(PLACES);
  readonly #slots = new Uint16Array(PLACES);
  // Of the keys that are not kept one by one.
  readonly #restUses = new Uint32Array(SLOTS);
  readonly #restSizes = new Uint32Array(SLOTS);
  #keys = 0;
  #looks = 0;
  /** One in so many uses is looked at. */
  weight = 1;

  /** By the place of a server; undefined: not asked for. */
  readonly #spreads: Map<number, Uint32Array> | undefined;

  constructor(
    readonly client: string,
    hasSpreads = false,
  ) {
    this.#spreads = hasSpreads ? new Map() : undefined;
  }

  /**
   * The place of a server; -1 if there are too many. It is the server's as long as `names` has it there: with
   * all places taken, a server without answers in this window loses its.
   */
  server(name: string): number {
    const known = this.names.indexOf(name);
    if (known >= 0) return known;
    if (Buffer.byteLength(name) > 255) return -1;
    if (this.names.length < SERVERS_MAX) return this.names.push(name) - 1;
    const idle = this.#answers.indexOf(0);
    if (idle >= 0) this.names[idle] = name;
    return idle;
  }

  /** A server has answered after so many microseconds. */
  answered(server: number, us: number): void {
    const sum = (this.#sumsUs[server] as number) + us;
    if (sum > U32_MAX) return;
    this.#sumsUs[server] = sum;
    this.#answers[server] = (this.#answers[server] as number) + 1;
    if (this.#spreads !== undefined) this.#vary(this.#spreads, server, us);
  }

  #vary(spreads: Map<number, Uint32Array>, server: number, us: number): void {
    let counts = spreads.get(server);
    if (counts === undefined) {
      if (spreads.size === SPREADS_MAX) return;
      counts = new Uint32Array(HIGHEST - LOWEST + 1);
      spreads.set(server, counts);
    }
    const bucket = Math.ceil(Math.log(Math.max(us, 1) / 1_000) / LOG_GAMMA);
    const at = Math.min(Math.max(bucket, LOWEST), HIGHEST) - LOWEST;
    counts[at] = (counts[at] as number) + 1;
  }

  #sentSpreads(): SpreadEntry[] | undefined {
    if (this.#spreads === undefined) return undefined;
    return [...this.#spreads].map(([server, counts]) => {
      const all = [...counts].map((count, at) => [at + LOWEST, count] as [number, number]);
      const buckets = all.filter(([, count]) => count > 0);
      const beyond = buckets.splice(0, Math.max(buckets.length - SENT_BUCKETS_MAX, 0));
      const lowest = buckets[0] as [number, number];
      for (const [, count] of beyond) lowest[1] += count;
      return [this.names[server] as string, buckets];
    });
  }

  /** How often a server has answered in this window. */
  answers(server: number): number {
    return this.#answers[server] as number;
  }

  /**
   * A key was used, `weight` times; its value has at least so many bytes. After so many more uses the next one
   * shall be counted.
   */
  used(slot: number, id: KeyId, size: number): number {
    this.#looks += 1;
    if (this.#looks > LOOKS_MAX) {
      this.#looks = LOOKS_MAX / 2;
      this.weight *= 2;
    }
    this.#add(slot, id.high, id.low, this.weight, size);
    // At random, or a workload with a period would show one of its keys only.
    return this.weight === 1 ? 1 : Math.floor(Math.random() * (2 * this.weight - 1)) + 1;
  }

  /** A value has at least so many bytes; a key that is not kept stays so. */
  sized(slot: number, id: KeyId, size: number): void {
    const at = this.#find(slot, id.high, id.low);
    if (this.#uses[at] !== 0 && size > (this.#sizes[at] as number)) {
      this.#sizes[at] = Math.min(size, U32_MAX);
    }
  }

  #find(slot: number, high: number, low: number): number {
    // Ids of similar keys are similar: spread them.
    let at = Math.imul(low ^ Math.imul(high, 0x85eb_ca6b), 0x9e37_79b1) >>> 20;
    while (
      this.#uses[at] !== 0 &&
      (this.#low[at] !== low || this.#high[at] !== high || this.#slots[at] !== slot)
    ) {
      at = (at + 1) & (PLACES - 1);
    }
    return at;
  }

  #add(slot: number, high: number, low: number, times: number, size: number): void {
    let at = this.#find(slot, high, low);
    if (this.#uses[at] === 0) {
      if (this.#keys === KEYS_MAX) {
        this.#shrink();
        at = this.#find(slot, high, low);
      }
      this.#keys += 1;
      this.#high[at] = high;
      this.#low[at] = low;
      this.#slots[at] = slot;
      this.#sizes[at] = 0;
    }
    this.#uses[at] = Math.min((this.#uses[at] as number) + times, U32_MAX);
    if (size > (this.#sizes[at] as number)) this.#sizes[at] = Math.min(size, U32_MAX);
  }

  /** Adds the lighter half of the keys up by slot. */
  #shrink(): void {
    const least = this.#uses.filter((times) => times > 0).sort()[this.#keys >> 1] as number;
    const kept: KeyEntry[] = [];
    for (const entry of this.#entries()) {
      const [slot, , , times, size] = entry;
      if (times > least) {
        kept.push(entry);
      } else {
        this.#restUses[slot] = Math.min((this.#restUses[slot] as number) + times, U32_MAX);
        this.#restSizes[slot] = Math.max(this.#restSizes[slot] as number, size);
      }
    }
    this.#uses.fill(0);
    this.#keys = 0;
    for (const entry of kept) this.#add(...entry);
  }

  *#entries(): Generator<KeyEntry> {
    for (let at = 0; at < PLACES; at++) {
      if (this.#uses[at] !== 0) yield this.#entry(at);
    }
  }

  /** The places of the keys that are kept, in the order of their slots. */
  #bySlot(): Uint16Array {
    const places = new Uint16Array(this.#keys);
    let count = 0;
    for (let at = 0; at < PLACES; at++) if (this.#uses[at] !== 0) places[count++] = at;
    return places.sort((a, b) => (this.#slots[a] as number) - (this.#slots[b] as number));
  }

  #entry(at: number): KeyEntry {
    const [slot, size] = [this.#slots[at] as number, this.#sizes[at] as number];
    return [slot, this.#high[at] as number, this.#low[at] as number, this.#uses[at] as number, size];
  }

  *#allUses(places: Uint16Array): Generator<KeyEntry> {
    // What is left of a slot is keys of this client only: an id that no other client has.
    const own = keyId(`\0${this.client}`, { high: 0, low: 0 });
    let nth = 0;
    for (let slot = 0; slot < SLOTS; slot++) {
      for (; nth < places.length && this.#slots[places[nth] as number] === slot; nth++) {
        yield this.#entry(places[nth] as number);
      }
      const uses = this.#restUses[slot] as number;
      if (uses > 0) yield [slot, own.high, own.low, uses, this.#restSizes[slot] as number];
    }
  }

  /** All that was counted, packed; the next window begins. */
  take(durationMs: number): Buffer {
    const servers: ServerEntry[] = [];
    this.names.forEach((name, at) => {
      const answers = this.answers(at);
      if (answers > 0) servers.push([name, answers, this.#sumsUs[at] as number]);
    });
    const places = this.#bySlot();
    let rest = 0;
    for (const uses of this.#restUses) rest += uses > 0 ? 1 : 0;
    let [slots, last] = [rest, -1];
    for (const at of places) {
      const slot = this.#slots[at] as number;
      if (slot !== last && this.#restUses[slot] === 0) slots += 1;
      last = slot;
    }
    const keys = this.#keys + rest;
    const spreads = this.#sentSpreads();
    const body = pack(this.client, durationMs, servers, slots, keys, this.#allUses(places), spreads);
    this.#spreads?.clear();
    for (const counts of [this.#answers, this.#sumsUs, this.#uses]) counts.fill(0);
    this.#restUses.fill(0);
    this.#restSizes.fill(0);
    this.#keys = 0;
    // The next window begins with what this one was looked at, or less if it was quiet.
    if (this.weight > 1 && this.#looks <= LOOKS_MAX / 2) this.weight /= 2;
    this.#looks = 0;
    return body;
  }
}
