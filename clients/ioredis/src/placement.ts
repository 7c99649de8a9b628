// Where sketches go, and how often.

import { randomBytes } from "node:crypto";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { hostname } from "node:os";
import { Sketch } from "./sketch.js";

/** Answers of a server in a window from which on it gets no PING. */
const ENOUGH_ANSWERS = 4;

/** What a client reports to `portolan place`. */
export interface Placement {
  /** Where it listens (`--listen`). Default: `http://127.0.0.1:7390`. */
  url?: string;
  /** As its `--token`. */
  token?: string;
  /** Of this client alone, the same as long as it lives. Default: the host's name and a random number. */
  name?: string;
  /** As its `--window`. Default: 10,000. */
  windowMs?: number;
  /** How long sending may take. Default: 2,000. */
  deadlineMs?: number;
  /** Servers a second that get a PING, in turn, until each has answered four times in a window. Default: 20. */
  pingsPerS?: number;
  /** Whether a request counts, by its name and arguments: false for those that may wait. */
  counts?: (name: string, args: readonly unknown[]) => boolean;
  /** Whether latencies are sent as distributions too: for `portolan place --objective p95`. Default: false. */
  quantiles?: boolean;
}

/** What became of a client's sketches. */
export interface Stats {
  /** Sketches that `portolan place` has taken. */
  sent: number;
  /** Sketches that were dropped: it did not answer in time, or refused them. */
  dropped: number;
  /** PINGs to servers that were seldom used. */
  pings: number;
  /** PINGs that failed. */
  pingsFailed: number;
  /** Why the last sketch was dropped. */
  lastError: string | undefined;
}

/** A server as the client reaches it, by the name that the cluster has for it. */
export interface Reachable {
  name: string;
  ping(): Promise<unknown>;
}

/** Takes a sketch each window and sends it. Errors are counted and stay here. */
export class Reporter {
  readonly stats: Stats = { sent: 0, dropped: 0, pings: 0, pingsFailed: 0, lastError: undefined };
  readonly sketch: Sketch;
  readonly #placement: Placement;
  readonly #url: URL;
  readonly #servers: () => Reachable[];
  #began = performance.now();
  #timers: NodeJS.Timeout[] = [];
  #turn = -1;

  constructor(placement: Placement, servers: () => Reachable[]) {
    const name = placement.name ?? `${hostname().slice(0, 200)}-${randomBytes(4).toString("hex")}`;
    const length = Buffer.byteLength(name);
    if (length < 1 || length > 255) throw new RangeError("the name of a client has 1 to 255 bytes");
    const { windowMs = 10_000, deadlineMs = 2_000, pingsPerS = 20 } = placement;
    if (!(windowMs >= 100 && windowMs <= 3_600_000 && deadlineMs > 0 && pingsPerS >= 0)) {
      throw new RangeError("windowMs is 100 to 3600000, deadlineMs above 0, pingsPerS not negative");
    }
    const url = (placement.url ?? "http://127.0.0.1:7390").replace(/\/+$/, "");
    this.#url = new URL(`${url}/v1/sketches`);
    if (!["http:", "https:"].includes(this.#url.protocol)) {
      throw new RangeError("the URL of a placement begins with http:// or https://");
    }
    this.#placement = { ...placement, windowMs, deadlineMs, pingsPerS };
    this.#servers = servers;
    this.sketch = new Sketch(name, placement.quantiles);
  }

  get counts(): Placement["counts"] {
    return this.#placement.counts;
  }

  /** Reports each window, until it is stopped. Its timers keep no process alive. */
  start(): void {
    if (this.#timers.length > 0) return;
    const { windowMs = 0, pingsPerS = 0 } = this.#placement;
    this.#timers.push(setInterval(() => void this.flush(), windowMs));
    if (pingsPerS > 0) this.#timers.push(setInterval(() => this.#pingOne(), 1000 / pingsPerS));
    for (const timer of this.#timers) timer.unref();
  }

  /** Sends what was counted, and ends. */
  async stop(): Promise<void> {
    if (this.#timers.length === 0) return;
    for (const timer of this.#timers) clearInterval(timer);
    this.#timers = [];
    await this.flush(true);
  }

  /** Sends what was counted since the last time. Only the last one is waited for by the process. */
  async flush(isLast = false): Promise<void> {
    const now = performance.now();
    const durationMs = Math.min(Math.max(Math.trunc(now - this.#began), 1), 3_600_000);
    this.#began = now;
    try {
      await this.#post(this.sketch.take(durationMs), isLast);
      this.stats.sent += 1;
    } catch (error) {
      this.stats.dropped += 1;
      this.stats.lastError = String(error);
    }
  }

  #post(body: Buffer, isLast: boolean): Promise<void> {
    const { token, deadlineMs = 0 } = this.#placement;
    const headers: Record<string, string | number> = {
      "Content-Type": "application/octet-stream",
      "Content-Length": body.length,
      Connection: "close",
    };
    if (token !== undefined) headers["Authorization"] = `Bearer ${token}`;
    const make = this.#url.protocol === "https:" ? httpsRequest : httpRequest;
    return new Promise((resolve, reject) => {
      const request = make(this.#url, { method: "POST", headers, agent: false }, (answer) => {
        clearTimeout(deadline);
        answer.resume();
        if (answer.statusCode === 204) resolve();
        else reject(new Error(`${answer.statusCode} ${answer.statusMessage}`));
      });
      const late = () => request.destroy(new Error(`no answer within ${deadlineMs} ms`));
      const deadline = setTimeout(late, deadlineMs);
      if (!isLast) {
        deadline.unref();
        request.on("socket", (socket) => socket.unref());
      }
      request.on("error", (error) => {
        clearTimeout(deadline);
        reject(error);
      });
      request.end(body);
    });
  }

  /** A PING to the next server, in turn, that has answered too seldom in this window. */
  #pingOne(): void {
    const servers = this.#servers();
    const places = new Map(this.sketch.names.map((name, at) => [name, at]));
    for (let step = 1; step <= servers.length; step++) {
      const at = (this.#turn + step) % servers.length;
      const server = servers[at] as Reachable;
      const place = places.get(server.name);
      if (place !== undefined && this.sketch.answers(place) >= ENOUGH_ANSWERS) continue;
      this.#turn = at;
      this.stats.pings += 1;
      server.ping().catch(() => {
        this.stats.pingsFailed += 1;
      });
      return;
    }
  }
}
