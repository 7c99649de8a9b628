// The sites of a deployment, by how long they take to answer.
//
// A client's site is left for a nearer one only if that answers clearly sooner, by the medians of the last
// PINGs, and not soon after the last move: two sites at like distances do not make clients swing.

import type { Socket } from "node:net";
import { Redis, type RedisOptions } from "ioredis";

/** When a session leaves a site that answers. */
export interface Roaming {
  /** False: only when the site fails. Default: true. */
  nearer?: boolean;
  /** Between PINGs to each site. Default: 5,000. */
  pingEveryMs?: number;
  /** The other site answers in at most this share of the time of the own one … Default: 0.7. */
  share?: number;
  /** … and sooner by this at least. Default: 1. */
  gainMs?: number;
  /** A session stays at a site this long at least, while the site answers. Default: 30,000. */
  stayMs?: number;
  /** What a session may wait for the nearer site to have all that it has seen; otherwise it stays. Default: 1,000. */
  waitMs?: number;
  /**
   * Whether a `set` or `mset` that was sent in vain goes on at other sites, and is made once. Default: false, as a
   * site that leaves and comes back under its name meanwhile may show it over a later write for a moment. Each such
   * put takes some tens of bytes at every site for that, of the last 65,536.
   */
  elsewhere?: boolean;
}

/**
 * `["pier:7379", …]`, or by site's name, with one address or several nodes' each; with `elsewhere` by their names in
 * the deployment (`portolan site list`).
 */
export type Addresses = readonly string[] | Readonly<Record<string, string | readonly string[]>>;

/** As for a `Redis`, without address, retries and prefix: `username`, `password`, `tls`, …. */
export type LinkOptions = Omit<RedisOptions, "replyMapping" | "keyPrefix">;

export interface Node {
  site: string;
  host: string;
  port: number;
}

/** PINGs of a site that its distance is the median of. */
const PINGS_KEPT = 5;
/** So many are needed before a client goes by them. */
const PINGS_NEEDED = 3;

/** The sites that sessions of this process may use. Sessions share one of these. */
export class Sites {
  readonly roaming: Required<Roaming>;
  readonly #nodes = new Map<string, Node[]>();
  readonly #options: LinkOptions;
  readonly #pings = new Map<string, number[]>();
  readonly #links = new Map<string, Redis>();
  /** Sites that refuse numbers: they are of an earlier version, or have other names. */
  readonly #stay = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #sessions = 0;

  constructor(addresses: Addresses, options: LinkOptions = {}, roaming: Roaming = {}) {
    const named = isList(addresses) ? addresses.map((one) => [one, one] as const) : Object.entries(addresses);
    for (const [site, of] of named) {
      this.#nodes.set(site, (typeof of === "string" ? [of] : of).map((text) => nodeOf(site, text)));
    }
    if (this.#nodes.size === 0 || [...this.#nodes.values()].some((nodes) => nodes.length === 0)) {
      throw new RangeError("at least one site, each with an address");
    }
    this.#options = options;
    const defaults = { nearer: true, pingEveryMs: 5_000, share: 0.7, gainMs: 1, stayMs: 30_000, waitMs: 1_000 };
    this.roaming = { ...defaults, elsewhere: false, ...roaming };
    if (this.roaming.elsewhere && isList(addresses)) throw new RangeError("elsewhere needs the names of the sites");
    const { pingEveryMs, share, gainMs, stayMs, waitMs } = this.roaming;
    if (!(pingEveryMs >= 10 && stayMs >= 1_000 && waitMs >= 1 && waitMs <= 10_000)) {
      throw new RangeError("pingEveryMs is 10 at least, stayMs 1,000, waitMs 1 to 10,000");
    }
    if (!(share > 0 && share < 1 && gainMs >= 0)) {
      throw new RangeError("share lies between 0 and 1, gainMs is not negative");
    }
  }

  /** The nodes of a site. */
  nodes(site: string): readonly Node[] {
    const nodes = this.#nodes.get(site);
    if (nodes === undefined) throw new RangeError(`there is no site ${site}`);
    return nodes;
  }

  /** The median of a site's last PINGs; undefined: too few were answered. */
  distanceMs(site: string): number | undefined {
    const pings = this.#pings.get(site) ?? [];
    return pings.length < PINGS_NEEDED ? undefined : pings.slice().sort((a, b) => a - b)[pings.length >> 1];
  }

  /** A site that a session should leave this one for. */
  nearerThan(site: string): string | undefined {
    const here = this.distanceMs(site);
    if (here === undefined) return undefined;
    let [best, least] = [site, here];
    for (const name of this.#nodes.keys()) {
      const ms = this.distanceMs(name);
      if (ms !== undefined && ms < least) [best, least] = [name, ms];
    }
    const { share, gainMs } = this.roaming;
    return least <= here * share && here - least >= gainMs ? best : undefined;
  }

  /**
   * All nodes in the order to try: of the site where the session is, then of the others, the nearest first;
   * those of one that did not answer in time, or does not serve, come last.
   */
  inTurn(here: string | undefined, last: string | undefined): Node[] {
    const rank = (site: string) =>
      site === last ? Infinity : site === here ? -1 : (this.distanceMs(site) ?? Number.MAX_VALUE);
    return [...this.#nodes.keys()]
      .map((site) => [rank(site), site] as const)
      .sort(([a], [b]) => (a === b ? 0 : a - b))
      .flatMap(([, site]) => this.nodes(site));
  }

  /** Whether a put that is tried first at this site may be sent to another one. */
  goElsewhere(site: string): boolean {
    return this.roaming.elsewhere && this.#nodes.size > 1 && !this.#stay.has(site);
  }

  /** It may not. */
  staysThere(site: string, why: Error): void {
    if (this.#stay.has(site)) return;
    process.emitWarning(`puts at ${site} are not sent to other sites: ${why.message}`, "PortolanWarning");
    this.#stay.add(site);
  }

  /** A site does not answer: what its PINGs took counts no more. */
  failed(site: string): void {
    this.#pings.delete(site);
  }

  /** A site has answered a PING. */
  answered(site: string, ms: number): void {
    const pings = this.#pings.get(site) ?? [];
    this.#pings.set(site, [...pings, ms].slice(-PINGS_KEPT));
  }

  /**
   * A connection to a node, which neither connects again nor sends anything again by itself; with a limit for each
   * request.
   */
  link({ host, port }: Node, limitMs = Infinity): Redis {
    const options = { connectTimeout: 1_000, socketTimeout: 2_000, ...this.#options };
    const limited = (ms: number | undefined) => Math.ceil(Math.min(ms || Infinity, limitMs));
    const limits = { connectTimeout: limited(options.connectTimeout), socketTimeout: limited(options.socketTimeout) };
    const link = new Redis({
      ...options,
      ...(limitMs < Infinity ? limits : {}),
      host,
      port,
      lazyConnect: true,
      enableReadyCheck: false,
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      retryStrategy: () => null,
    });
    // Each request gets the error, too.
    link.on("error", () => {});
    return link;
  }

  /** A session begins: sites are measured from now on, if there is something to choose. */
  begin(): void {
    this.#sessions += 1;
    if (this.#timer || !this.roaming.nearer || this.#nodes.size < 2) return;
    const pingAll = () => {
      for (const site of this.#nodes.keys()) void this.#ping(site);
    };
    this.#timer = setInterval(pingAll, this.roaming.pingEveryMs).unref();
    pingAll();
  }

  /** A session has ended. */
  end(): void {
    this.#sessions -= 1;
    if (this.#sessions > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    for (const link of this.#links.values()) link.disconnect();
    this.#links.clear();
  }

  async #ping(site: string): Promise<void> {
    for (const node of this.nodes(site)) {
      let link = this.#links.get(site);
      try {
        if (link === undefined) {
          link = this.link(node);
          this.#links.set(site, link);
          await link.connect();
          socketOf(link)?.unref();
        } else if (link.status !== "ready") {
          if (link.status === "connecting" || link.status === "connect") return;
          throw new Error(link.status);
        }
        const sentAt = performance.now();
        await link.ping();
        this.answered(site, performance.now() - sentAt);
        return;
      } catch {
        link?.disconnect();
        if (this.#links.get(site) === link) this.#links.delete(site);
      }
    }
    this.failed(site);
  }
}

/** The socket of a connection, which ioredis has no name for outside. */
export function socketOf(link: Redis): Socket | undefined {
  return (link as unknown as { stream?: Socket }).stream;
}

function isList(addresses: Addresses): addresses is readonly string[] {
  return Array.isArray(addresses);
}

function nodeOf(site: string, text: string): Node {
  const [, host, port] = /^(.+):(\d+)$/.exec(text) ?? [];
  if (host === undefined || port === undefined) throw new RangeError(`${text} is no HOST:PORT`);
  return { site, host: host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}
