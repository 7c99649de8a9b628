// Sessions with causal keyspaces that move among sites by themselves.
//
// A session takes its token along unseen. What is asked in one turn of the event loop is sent with one
// PORTOLAN.TOKEN behind it, in the same packet: the answers bring the token, and no round trip is added. An
// answer is not given to the application before its token is here, so a site that fails at any moment takes
// nothing along that the application has seen.

import { Command, Redis, type RedisOptions } from "ioredis";
import { NoSite, named, SessionError, UnknownOutcome } from "./errors.js";
import { againOf, firstOf, isPut, Numbers, type Put } from "./puts.js";
import { type Addresses, type Node, Sites, socketOf } from "./roaming.js";

export interface SessionOptions {
  /** Of the session to go on with. */
  token?: string;
  /** What a call may take with all its attempts, at any site. Default: 5,000. */
  deadlineMs?: number;
}

/** How a session has moved. */
export interface SessionStats {
  /** To another site or node, also to come back to one that had failed. */
  attaches: number;
  /** Moves to a nearer site, or by `moveTo`. */
  moves: number;
  /** What attaching took, together and at most. */
  attachMs: number;
  attachMsMax: number;
  /**
   * Reads that were sent again, and requests that were refused without effect and sent again; attempts of puts that
   * may have been made.
   */
  repeats: number;
}

/** Names of commands that change nothing, so that they may be sent again, to another site too. */
const READS = new Set(
  (
    "get mget exists strlen getrange substr type ttl pttl expiretime pexpiretime keys scan dbsize" +
    " randomkey hget hmget hgetall hkeys hvals hlen hexists hstrlen hscan hrandfield" +
    " ping echo time portolan.token portolan.attach"
  ).split(" "),
);
const UNSUITED = new Set("subscribe psubscribe ssubscribe monitor watch".split(" "));
/** A site that does not serve now has done nothing. */
const NOT_SERVING = /^(CLUSTERDOWN|LOADING) /;
/** What a site may wait at once for what it lacks, before the next one is asked. */
const ATTACH_MS = 500;
/** Between two rounds over all sites. */
const PAUSE_MS = 50;
/** Between two looks whether another site is nearer. */
const LOOK_MS = 1_000;

/** What was asked in one turn. */
interface Batch {
  commands: Command[];
  endsAt: number;
  /** Writes among them were refused, and have yet to be made. */
  isRefused: boolean;
}

/** What became of a request on a connection. */
interface Outcome {
  value?: unknown;
  error?: Error;
  /** It was an attempt of this. */
  put?: Put;
  settle: () => void;
}

/** A put that was sent in vain. */
interface Lost {
  put: Put;
  endsAt: number;
  why: Error | undefined;
}

/** A connection in use, and how many batches are on their way on it. */
interface Link {
  redis: Redis;
  site: string;
  batches: number;
  /** Called once none is. */
  drained: (() => void)[];
}

/**
 * A `Redis` of ioredis that is one session with the causal keyspaces of a deployment, at whatever site it is.
 *
 * It reads what it has written and never less than it has read, also when its site fails or it moves to a
 * nearer one.
 */
export class Session extends Redis {
  readonly sessionStats: SessionStats = { attaches: 0, moves: 0, attachMs: 0, attachMsMax: 0, repeats: 0 };
  readonly #sites: Sites;
  readonly #deadlineMs: number;
  #token: string | undefined;
  #link: Link | undefined;
  #site: string | undefined;
  /** A site that did not answer in time, or does not serve: it comes last. */
  #last: string | undefined;
  #turn: Command[] = [];
  #waiting: Batch[] = [];
  #isOpening = false;
  #isMoving = false;
  /** The session is between two sites: nothing is sent. */
  #isHeld = false;
  #isClosed = false;
  readonly #numbers = new Numbers();
  /** Puts whose first attempt was certainly not made, or is on its way. */
  readonly #puts = new WeakMap<Command, Put>();
  /** Puts that a site refuses under a number: they are made like any other write. */
  readonly #plain = new WeakMap<Command, { site: string; why: Error }>();
  /** A site has refused a number: until it takes one, only a put that nothing follows has one. */
  #isRefusing = false;
  /** Puts that are asked for, in their order; nothing else is sent meanwhile. */
  #lost: Lost[] = [];
  #settling: Promise<void> | undefined;
  #asking: { redis: Redis; node: Node } | undefined;
  #stayUntil = 0;
  #lookAt = 0;

  constructor(sites: Sites | Addresses, options: SessionOptions = {}) {
    // The base makes commands and pipelines; it never connects.
    super({ lazyConnect: true } satisfies RedisOptions);
    this.#sites = sites instanceof Sites ? sites : new Sites(sites);
    this.#deadlineMs = options.deadlineMs ?? 5_000;
    this.#token = options.token;
    this.#sites.begin();
  }

  /** What the session has seen, for another process or site; undefined: nothing. */
  get token(): string | undefined {
    return this.#token;
  }

  /** The name of the site in use. */
  get site(): string | undefined {
    return this.#site;
  }

  /** Forgets what the session has seen: a new one begins. Not while requests are on their way. */
  beginAnew(): void {
    this.#leave();
    this.#token = undefined;
  }

  /** Goes on at this site, and stays where it is if that fails. */
  async moveTo(site: string, withinMs = 2_000): Promise<void> {
    if (this.#isMoving || this.#isClosed) throw new Error("the session moves already, or is closed");
    this.#isMoving = true;
    let there: Redis | undefined;
    try {
      const before = this.#token;
      there = await this.#attachAny(site, withinMs);
      this.#isHeld = true;
      await this.#drained();
      await this.#catchUp(there, before, withinMs);
      if (this.#isClosed) throw closed();
      this.#leave();
      this.#settle(site, there);
      this.sessionStats.moves += 1;
    } catch (error) {
      there?.disconnect();
      throw error;
    } finally {
      this.#isMoving = this.#isHeld = false;
      this.#go();
    }
  }

  override async connect(): Promise<void> {
    await this.ping();
  }

  override disconnect(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#leave();
    this.#leaveAsked();
    this.#sites.end();
    this.#fail(closed());
    super.disconnect();
  }

  override async quit(): Promise<"OK"> {
    if (this.#link) await this.#drained();
    await this.#settling;
    this.disconnect();
    return "OK";
  }

  override duplicate(): Redis {
    throw new Error("a session is one: make another Session of the same Sites");
  }

  override sendCommand(command: Command): unknown {
    if (this.#isClosed) {
      command.reject(closed());
    } else if (UNSUITED.has(command.name) || (command.name === "multi" && !command.inTransaction)) {
      const why = command.name === "multi" ? "use multi() with exec()" : "use a Redis of its own";
      command.reject(new Error(`${command.name} belongs to no session: ${why}`));
    } else {
      this.#turn.push(command);
      if (this.#turn.length === 1) queueMicrotask(() => this.#asked());
    }
    return command.promise;
  }

  #asked(): void {
    const commands = this.#turn;
    this.#turn = [];
    this.#waiting.push({ commands, endsAt: performance.now() + this.#deadlineMs, isRefused: false });
    this.#go();
  }

  /** Sends what waits, if the session is at a site. */
  #go(): void {
    if (this.#isClosed) return this.#fail(closed());
    if (this.#isHeld || this.#lost.length > 0 || this.#waiting.length === 0) return;
    const link = this.#link;
    if (link?.redis.status !== "ready") {
      void this.#open();
      return;
    }
    const batches = this.#waiting;
    this.#waiting = [];
    const socket = socketOf(link.redis);
    socket?.cork();
    for (const batch of batches) this.#send(link, batch);
    socket?.uncork();
    if (performance.now() >= this.#lookAt) this.#look();
  }

  #send(link: Link, batch: Batch): void {
    link.batches += 1;
    const { commands } = batch;
    const isAlone = commands.length === 1 && link.batches === 1;
    const settled = commands.map((command) => {
      const put = this.#numbered(command, link.site, isAlone);
      const sent = put === undefined ? command : firstOf(put);
      const { resolve, reject } = sent;
      const outcome: Outcome = {
        settle: () => {
          [sent.resolve, sent.reject] = [resolve, reject];
        },
      };
      if (put !== undefined) outcome.put = put;
      sent.resolve = (value: unknown) => void (outcome.value = value);
      sent.reject = (error: Error) => void (outcome.error = error);
      link.redis.sendCommand(sent);
      return outcome;
    });
    const ask = new Command("portolan.token", [], { replyEncoding: "utf8" });
    const ends = (token: string | undefined, why?: Error) => {
      for (const { settle } of settled) settle();
      link.batches -= 1;
      // The session may have gone on elsewhere, with a token that this one would replace.
      const lost = link === this.#link ? why : new Error("the session has left the connection");
      if (lost === undefined) this.#token = token;
      this.#answered(link, batch, settled, lost);
      if (link.batches === 0) for (const drained of link.drained.splice(0)) drained();
    };
    ask.promise.then((token: string) => ends(token), (why: Error) => ends(undefined, why));
    link.redis.sendCommand(ask);
  }

  /** Gives answers to the application, and sends again what may be. `lost`: no token came behind them. */
  #answered(link: Link, batch: Batch, outcomes: Outcome[], lost?: Error): void {
    const again: Command[] = [];
    const isLost = lost !== undefined && lost.name !== "ReplyError";
    let refuses = false;
    const plainFrom = this.#plainFrom(link, batch, outcomes, isLost);
    // What is asked for now comes before these, and must not if they were asked for earlier.
    let isRefused = this.#waiting.some((one) => one.isRefused);
    const mayAsk = (put: Put | undefined): put is Put => put !== undefined && !isRefused;
    batch.commands.forEach((command, nth) => {
      const { value, error, put } = outcomes[nth]!;
      const isOfNumber = put !== undefined && error?.name === "ReplyError" && refusesNumber(error);
      if (isOfNumber) this.#refused(link.site, command, error);
      if (nth >= plainFrom) {
        again.push(command);
      } else if (error?.name === "ReplyError") {
        const isRefusal = NOT_SERVING.test(error.message);
        refuses ||= isRefusal;
        const why = named(error);
        // Made later, it would come after what was asked behind it.
        const isLast = nth === batch.commands.length - 1 && link.batches === 0;
        if (isRefusal && !command.inTransaction) {
          again.push(command);
          isRefused ||= !isRead(command);
        } else if (isLast && why instanceof UnknownOutcome && mayAsk(put)) {
          this.#lose(put, batch.endsAt, why);
        } else {
          command.reject(why);
        }
      } else if (lost === undefined && error === undefined) {
        if (put !== undefined) this.#isRefusing = false;
        const plain = this.#plain.get(command);
        if (plain !== undefined && isLasting(plain.why)) this.#sites.staysThere(plain.site, plain.why);
        command.resolve(value);
      } else if (lost?.name !== "ReplyError" && mayAsk(put)) {
        this.#lose(put, batch.endsAt, lost ?? error);
      } else if (lost?.name === "ReplyError") {
        command.reject(lost);
      } else if (isRead(command)) {
        again.push(command);
      } else {
        command.reject(lostBy(lost ?? error));
      }
    });
    if (isLost || refuses) this.#failed(link, lost, refuses);
    if (this.#lost.length > 0) this.#settling ??= this.#askAgain();
    if (again.length === 0) return;
    if (performance.now() >= batch.endsAt) {
      for (const command of again) command.reject(lost ?? new NoSite("no site serves within the deadline"));
      return;
    }
    this.sessionStats.repeats += 1;
    // Batches of a connection fail in their order.
    this.#waiting.push({ commands: again, endsAt: batch.endsAt, isRefused });
    this.#waiting.sort((a, b) => a.endsAt - b.endsAt);
    this.#go();
  }

  /** The put that a request is, if it may be sent to several sites. */
  #numbered(command: Command, site: string, isAlone: boolean): Put | undefined {
    if (!this.#sites.goElsewhere(site) || this.#plain.has(command) || !isPut(command)) return undefined;
    if (this.#isRefusing && !isAlone) return undefined;
    const put = this.#puts.get(command) ?? { command, number: this.#numbers.next(), first: site };
    put.first = site;
    this.#puts.set(command, put);
    return put;
  }

  /** A site refuses the number of a put, and has done nothing. */
  #refused(site: string, command: Command, why: Error): void {
    this.#isRefusing = true;
    this.#plain.set(command, { site, why });
  }

  /**
   * The first of the requests that are made again, without a number: one that was refused for its number, and all
   * behind it, if they have done nothing. Otherwise it would come after what the application asked for later.
   */
  #plainFrom(link: Link, batch: Batch, outcomes: Outcome[], isLost: boolean): number {
    const isOfNumber = ({ put, error }: Outcome) =>
      put !== undefined && error?.name === "ReplyError" && refusesNumber(error);
    const first = outcomes.findIndex(isOfNumber);
    if (first < 0 || isLost || link.batches > 0 || performance.now() >= batch.endsAt) return Infinity;
    const hasDoneNothing = (command: Command, nth: number) => isOfNumber(outcomes[nth]!) || isRead(command);
    return batch.commands.every((command, nth) => nth < first || hasDoneNothing(command, nth)) ? first : Infinity;
  }

  #lose(put: Put, endsAt: number, why: Error | undefined): void {
    this.#lost.push({ put, endsAt, why });
  }

  /** Asks for the puts that were sent in vain, one after the other. The session goes on where it got its answers. */
  async #askAgain(): Promise<void> {
    // Answers that are on their way yet.
    await this.#drained();
    for (let lost = this.#lost[0]; lost !== undefined; lost = this.#lost[0]) {
      const { command } = lost.put;
      try {
        command.resolve(await this.#askFor(lost));
      } catch (error) {
        command.reject(this.#isClosed ? closed() : lostBy(error));
      }
      this.#lost.shift();
    }
    this.#leaveAsked();
    // It has not what the answers have.
    this.#leave();
    this.#settling = undefined;
    this.#go();
  }

  /** At each node of its site once more, unless that is silent, and at the others in turn, until its deadline. */
  async #askFor({ put, endsAt, why }: Lost): Promise<unknown> {
    let last: unknown = why;
    for (;;) {
      const nodes = this.#sites.inTurn(this.#site, this.#last);
      for (const node of this.#asking === undefined ? nodes : [this.#asking.node, ...nodes]) {
        const left = endsAt - performance.now();
        if (left <= 0 || this.#isClosed) break;
        this.sessionStats.repeats += 1;
        try {
          return await this.#askAt(node, put, left);
        } catch (error) {
          last = error;
          this.#leaveAsked();
          // It was a write like any other, at its first site.
          if (/^NOTONCE /.test((error as Error).message)) throw error;
        }
      }
      if (this.#isClosed || performance.now() + PAUSE_MS >= endsAt) throw last;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  /** A node that is asked need not have what the session has seen: the request waits for that. */
  async #askAt(node: Node, put: Put, leftMs: number): Promise<unknown> {
    let there = this.#asking;
    if (there?.node !== node) {
      this.#leaveAsked();
      this.#asking = there = { redis: this.#sites.link(node, leftMs), node };
      await there.redis.connect();
      if (this.#token !== undefined) await there.redis.call("PORTOLAN.ATTACH", this.#token, "LATER");
    }
    const [attempt, ask] = [againOf(put), new Command("portolan.token", [], { replyEncoding: "utf8" })];
    for (const one of [attempt, ask]) there.redis.sendCommand(one);
    const [value, token] = await Promise.all([attempt.promise, ask.promise]);
    if (this.#isClosed) throw closed();
    [this.#token, this.#site] = [token as string, node.site];
    return value;
  }

  #leaveAsked(): void {
    const there = this.#asking;
    this.#asking = undefined;
    if (there === undefined) return;
    there.redis.disconnect();
    socketOf(there.redis)?.destroy();
  }

  #failed(link: Link, why: Error | undefined, refuses: boolean): void {
    this.#sites.failed(link.site);
    if (this.#link !== link) return;
    const isSilent = why !== undefined && "isSilent" in link.redis;
    this.#last = isSilent || refuses ? link.site : undefined;
    this.#leave();
  }

  /** What is on its way on the connection is lost. */
  #leave(): void {
    const link = this.#link;
    this.#link = undefined;
    if (link === undefined) return;
    link.redis.disconnect();
    // That alone waits for the other side to close.
    socketOf(link.redis)?.destroy();
  }

  #settle(site: string, redis: Redis): void {
    const now = performance.now();
    this.#link = { redis, site, batches: 0, drained: [] };
    [this.#site, this.#last] = [site, undefined];
    [this.#stayUntil, this.#lookAt] = [now + this.#sites.roaming.stayMs, now + LOOK_MS];
  }

  #look(): void {
    const now = performance.now();
    this.#lookAt = now + LOOK_MS;
    if (now < this.#stayUntil || this.#isMoving || this.#site === undefined) return;
    const nearer = this.#sites.nearerThan(this.#site);
    if (nearer === undefined) return;
    this.moveTo(nearer, this.#sites.roaming.waitMs).catch(() => {
      // It is nearer and does not take the session: later, perhaps.
      this.#stayUntil = performance.now() + this.#sites.roaming.stayMs;
    });
  }

  async #drained(): Promise<void> {
    const link = this.#link;
    if (link && link.batches > 0) await new Promise<void>((resolve) => void link.drained.push(resolve));
  }

  async #open(): Promise<void> {
    if (this.#isOpening || this.#isMoving) return;
    this.#isOpening = true;
    this.#leave();
    try {
      await this.#attachFirst();
    } catch (error) {
      this.#fail(error as Error);
    } finally {
      this.#isOpening = false;
    }
    this.#go();
  }

  #fail(error: Error): void {
    const failed = this.#waiting;
    this.#waiting = [];
    for (const { commands } of failed) for (const command of commands) command.reject(error);
  }

  /** At the first site that takes the session before the deadline of what waits longest. */
  async #attachFirst(): Promise<void> {
    let lack: SessionError | undefined;
    let why: unknown;
    for (;;) {
      const endsAt = this.#waiting[0]?.endsAt ?? 0;
      for (const node of this.#sites.inTurn(this.#site, this.#last)) {
        const left = endsAt - performance.now();
        if (left <= 0) break;
        const [before, withinMs] = [this.#token, Math.min(left, ATTACH_MS)];
        let there: Redis | undefined;
        try {
          there = await this.#attach(node, withinMs);
          await this.#catchUp(there, before, withinMs);
          // `moveTo` may have come first.
          if (this.#isClosed || this.#link !== undefined) return there.disconnect();
          return this.#settle(node.site, there);
        } catch (error) {
          there?.disconnect();
          if (!(error instanceof SessionError)) why = error;
          else if (error.code === "LOST" || error.code === "BADTOKEN") throw error;
          else lack = error;
        }
      }
      if (this.#isClosed || performance.now() + PAUSE_MS >= endsAt) {
        throw lack ?? new NoSite(`no site takes the session within the deadline: ${why}`);
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  async #attachAny(site: string, withinMs: number): Promise<Redis> {
    let first: unknown;
    for (const node of this.#sites.nodes(site)) {
      try {
        return await this.#attach(node, withinMs);
      } catch (error) {
        first ??= error;
      }
    }
    throw first;
  }

  /** A connection to a node that has all that the session has seen. */
  async #attach(node: Node, withinMs: number): Promise<Redis> {
    const redis = this.#sites.link(node);
    redis.on("error", (error: Error) => {
      if (/timeout/i.test(error.message)) Object.assign(redis, { isSilent: true });
    });
    try {
      await redis.connect();
      if (this.#token !== undefined) await this.#admit(redis, this.#token, withinMs);
      return redis;
    } catch (error) {
      redis.disconnect();
      throw error;
    }
  }

  /**
   * Has a connection that was admitted with `token` take what the session has seen since. Puts that are asked for
   * bring newer tokens. (If one is lost after this, `#askAgain` leaves the connection.)
   */
  async #catchUp(redis: Redis, token: string | undefined, withinMs: number): Promise<void> {
    for (let has = token; ; ) {
      await this.#settling;
      if (this.#token === has) return;
      has = this.#token;
      if (has !== undefined) await this.#admit(redis, has, withinMs);
    }
  }

  async #admit(redis: Redis, token: string, withinMs: number): Promise<void> {
    const began = performance.now();
    const within = Math.min(10_000, Math.max(1, Math.floor(withinMs)));
    // A site answers at the end of what it was given, not before.
    const { socketTimeout } = redis.options;
    if (socketTimeout) redis.options.socketTimeout = socketTimeout + within;
    try {
      await redis.call("PORTOLAN.ATTACH", token, "WITHIN", within);
    } catch (error) {
      throw named(error as Error);
    } finally {
      if (socketTimeout) redis.options.socketTimeout = socketTimeout;
    }
    const [stats, tookMs] = [this.sessionStats, performance.now() - began];
    stats.attaches += 1;
    stats.attachMs += tookMs;
    stats.attachMsMax = Math.max(stats.attachMsMax, tookMs);
  }
}

/** Whether an answer to a first attempt refuses the number, and nothing was done. */
function refusesNumber({ message }: Error): boolean {
  return /^(ERR|NOTONCE|TRYAGAIN) /.test(message);
}

/** Whether it refuses the next one, too. */
function isLasting({ message }: Error): boolean {
  return /^(ERR|NOTONCE) /.test(message);
}

function lostBy(why: unknown): UnknownOutcome {
  return new UnknownOutcome(`the answer is lost: ${(why as Error | undefined)?.message}`);
}

function closed(): Error {
  return new Error("Connection is closed.");
}

/** Whether a request changes nothing and means the same at another node. */
export function isRead({ name, args, inTransaction }: Pick<Command, "name" | "args" | "inTransaction">): boolean {
  if (inTransaction || !READS.has(name.toLowerCase())) return false;
  // A cursor is a node's.
  const cursor = name === "scan" ? args[0] : name === "hscan" ? args[1] : "0";
  return String(cursor) === "0";
}
