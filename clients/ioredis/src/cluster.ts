// The Cluster of ioredis, with the same interface, that reports to `portolan place`.

import { Cluster as Base, type ClusterNode, type ClusterOptions, Command, type Redis } from "ioredis";
import { type Placement, Reporter, type Stats } from "./placement.js";
import { type KeyId, keyId } from "./sketch.js";

type BaseOptions = NonNullable<ConstructorParameters<typeof Base<"legacy">>[1]>;

export type PlacedClusterOptions = BaseOptions & {
  /** Where sketches go; without it nothing is counted. */
  placement?: Placement;
};

/** What is noted on a command: undefined before it was seen. */
const NOTE = Symbol("placement");
const UNTIMED = 1;
const TIMED = 2;

interface Noted {
  [NOTE]?: number | Timing;
}

/** A request on its way whose latency is taken. */
interface Timing {
  server: Server;
  sentAt: number;
}

/** One connection's server. At a time one of its requests is timed, so that the others cost nothing. */
interface Server {
  /** By which this client reaches it. */
  readonly address: string;
  /** As the cluster calls it; its address as long as that is not known. */
  name: string;
  place: number;
  isTiming: boolean;
}

/** Answers to these come when something happens elsewhere. */
const WAITING = new Set(
  "blpop brpop blmove blmovem brpoplpush blmpop bzpopmin bzpopmax bzmpop xread xreadgroup wait waitaof".split(
    " ",
  ),
);
const REDIRECT = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN) /;

/** An ioredis `Cluster`; `options.placement` sets where sketches go. */
export class Cluster extends Base {
  readonly #reporter: Reporter | undefined;
  /** Addresses as the cluster has them, where the client reaches them by others. */
  readonly #addresses: Map<string, string>;
  readonly #startupNodes: ClusterNode[];
  readonly #id: KeyId = { high: 0, low: 0 };
  #gap = 1;

  constructor(startupNodes: ClusterNode[], options: PlacedClusterOptions = {}) {
    const addresses = new Map<string, string>();
    const natMap = options.placement && options.natMap && remembering(options.natMap, addresses);
    super(startupNodes, natMap ? { ...options, natMap } : options);
    this.#addresses = addresses;
    this.#startupNodes = startupNodes;
    if (options.placement === undefined) return;
    this.#reporter = new Reporter(options.placement, () =>
      this.nodes("master").map((redis) => ({ name: this.#name(redis), ping: () => redis.ping() })),
    );
    // Connections are made in a later turn of the event loop, even if the constructor began to connect.
    this.on("+node", (redis: Redis) => this.#time(redis));
    if (this.status !== "wait") this.#reporter.start();
  }

  /** What became of the sketches. */
  get placementStats(): Stats | undefined {
    return this.#reporter?.stats;
  }

  override connect(): Promise<void> {
    // The constructor of the base connects before there is a reporter.
    if (#reporter in this) this.#reporter?.start();
    return super.connect();
  }

  override disconnect(reconnect = false): void {
    if (!reconnect && #reporter in this) void this.#reporter?.stop();
    super.disconnect(reconnect);
  }

  /** Sends what was counted, stops reporting, and quits as ever. */
  override async quit(callback?: Parameters<Base["quit"]>[0]): Promise<"OK"> {
    const sent = this.#reporter?.stop();
    const answer = await super.quit(callback);
    await sent;
    return answer;
  }

  // The types of the base compute the result from options that have no placement; no other type than `any`
  // is assignable to that.
  override duplicate(startupNodes: ClusterNode[] = [], overrides?: object): any {
    const options = overrides as PlacedClusterOptions | undefined;
    const own = this.options as PlacedClusterOptions;
    const merged: PlacedClusterOptions = { ...own, ...options };
    if (own.redisOptions && options?.redisOptions) {
      merged.redisOptions = { ...own.redisOptions, ...options.redisOptions };
    }
    if (merged.placement?.name !== undefined && options?.placement === undefined) {
      // A name is one client's.
      const { name: _, ...placement } = merged.placement;
      merged.placement = placement;
    }
    const nodes = startupNodes.length > 0 ? startupNodes : this.#startupNodes.slice();
    return new Cluster(nodes, merged);
  }

  override sendCommand(...args: Parameters<Base["sendCommand"]>): unknown {
    const [command] = args;
    // A pipeline that was redirected comes here again.
    if (#reporter in this && this.#reporter && (command as Noted)[NOTE] === undefined) {
      this.#used(this.#reporter, command);
    }
    return super.sendCommand(...args);
  }

  /** A request begins: its key is used once, wherever it is carried out. */
  #used(reporter: Reporter, command: Command): void {
    const note = command as Noted;
    note[NOTE] = UNTIMED;
    const key = command.getKeys()[0];
    if (key === undefined) return;
    if (reporter.counts && !reporter.counts(command.name, command.args)) return;
    if (!WAITING.has(command.name)) note[NOTE] = TIMED;
    this.#gap -= 1;
    if (this.#gap > 0) return;
    const size = command.args.reduce<number>((most, one) => Math.max(most, sizeOf(one)), 0);
    this.#gap = reporter.sketch.used(command.getSlot(), keyId(key, this.#id), size);
  }

  #name(redis: Redis): string {
    const address = addressOf(redis);
    return this.#addresses.get(address) ?? address;
  }

  /** Takes latencies of a connection's requests. */
  #time(redis: Redis): void {
    const address = addressOf(redis);
    const server: Server = { address, name: address, place: -1, isTiming: false };
    const send = redis.sendCommand;
    redis.sendCommand = (command, stream) => {
      const note = (command as Noted)[NOTE];
      if (typeof note === "object") {
        // Redirected, or sent again as the connection is ready: the clock begins anew.
        note.server.isTiming = false;
        note.server = server;
        note.sentAt = performance.now();
        server.isTiming = true;
      } else if (!server.isTiming && (note === TIMED || (!note && command.name === "ping"))) {
        this.#timeOne(command, server);
      }
      return send.call(redis, command, stream);
    };
  }

  #timeOne(command: Command, server: Server): void {
    const { resolve, reject } = command;
    const timing: Timing = { server, sentAt: performance.now() };
    (command as Noted)[NOTE] = timing;
    server.isTiming = true;
    const ends = (answer?: unknown) => {
      (command as Noted)[NOTE] = UNTIMED;
      timing.server.isTiming = false;
      this.#answered(timing, command, answer);
    };
    command.resolve = (answer: unknown) => {
      ends(answer);
      resolve.call(command, answer);
    };
    command.reject = (error: Error) => {
      // Sent elsewhere, or lost: either is no answer. The request may be sent again.
      const isAnswer = error.name === "ReplyError" && !REDIRECT.test(error.message);
      if (isAnswer) ends();
      reject.call(command, error);
      if (command.isSettled && !isAnswer) {
        timing.server.isTiming = false;
        // A pipeline may send it again, with a new promise.
        (command as Noted)[NOTE] = TIMED;
      }
    };
  }

  #answered({ server, sentAt }: Timing, command: Command, answer: unknown): void {
    const sketch = this.#reporter?.sketch;
    if (!sketch) return;
    const us = Math.round((performance.now() - sentAt) * 1000);
    // The first connection is older than what the cluster calls its server, and may have answered before.
    if (server.name === server.address) {
      server.name = this.#addresses.get(server.address) ?? server.address;
    }
    if (server.place < 0 || sketch.names[server.place] !== server.name) {
      server.place = sketch.server(server.name);
    }
    if (server.place >= 0) sketch.answered(server.place, us);
    const [key, size] = [command.getKeys()[0], sizeOf(answer)];
    if (key !== undefined && size > 0) sketch.sized(command.getSlot(), keyId(key, this.#id), size);
  }
}

function addressOf({ options }: Redis): string {
  return `${options.host}:${options.port}`;
}

function sizeOf(value: unknown): number {
  return typeof value === "string" || value instanceof Uint8Array ? value.length : 0;
}

/** Keeps what the cluster calls a server that this client reaches by another address. */
function remembering(
  natMap: NonNullable<ClusterOptions["natMap"]>,
  addresses: Map<string, string>,
): NonNullable<ClusterOptions["natMap"]> {
  return (key: string) => {
    const mapped = typeof natMap === "function" ? natMap(key) : natMap[key];
    if (mapped) addresses.set(`${mapped.host}:${mapped.port}`, key);
    return mapped ?? null;
  };
}
