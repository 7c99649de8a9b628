// Three sites as processes: the program of PORTOLAN_BIN, killed and suspended by tests.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const BIN = process.env["PORTOLAN_BIN"];
const LIMIT_MS = 300_000;
// As tests in Rust do it: a process guards a block by its first port, below what the system gives to clients.
const [FIRST, BLOCKS, PORTS_PER_BLOCK] = [10_100, 400, 50];
const ports: number[] = [];

function listens(port: number): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen(port, "127.0.0.1", () => resolve(server.unref()));
  });
}

export async function freePort(): Promise<number> {
  for (let block = 0; ports.length === 0; block++) {
    if (block === BLOCKS) throw new Error("no free block of ports on loopback");
    const first = FIRST + block * PORTS_PER_BLOCK;
    if (await listens(first)) for (let n = 1; n < PORTS_PER_BLOCK; n++) ports.push(first + n);
  }
  const port = ports.pop()!;
  const probe = await listens(port);
  if (!probe) return freePort();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** What `attempt` returns once it fails no more. */
export async function eventually<T>(attempt: () => T | Promise<T>, limitMs = LIMIT_MS): Promise<T> {
  const ends = performance.now() + limitMs;
  for (;;) {
    const asked = performance.now();
    try {
      return await attempt();
    } catch (error) {
      if (performance.now() > ends) throw error;
      // An attempt may start a process: a slow machine is left to the sites for most of the time.
      await sleep(Math.min(1_000, Math.max(50, 4 * (performance.now() - asked))));
    }
  }
}

export class Site {
  #process: ChildProcess | undefined;

  constructor(
    readonly folder: string,
    readonly name: string,
    readonly redis: number,
    readonly grpc: number,
    readonly peer: number,
    readonly join: Site | undefined,
  ) {}

  get address(): string {
    return `127.0.0.1:${this.redis}`;
  }

  /** Starts it, unless it runs. */
  start(): void {
    if (this.#process) return;
    const flags = ["--redis", this.redis, "--grpc", this.grpc, "--peer", this.peer].map((word) =>
      typeof word === "number" ? `127.0.0.1:${word}` : word,
    );
    if (this.join) flags.push("--join", `127.0.0.1:${this.join.peer}`);
    const out = openSync(join(this.folder, `${this.name}.log`), "a");
    const data = join(this.folder, this.name);
    const words = ["serve", "--site", this.name, "--data", data, "--admin", "off", ...flags];
    this.#process = spawn(BIN!, words, { stdio: ["ignore", out, out] });
  }

  cli(...words: string[]): Promise<string> {
    const all = [...words, "--server", `127.0.0.1:${this.grpc}`];
    return new Promise((resolve, reject) =>
      execFile(BIN!, all, { timeout: 30_000 }, (error, out, wrong) =>
        error ? reject(new Error(wrong)) : resolve(out),
      ),
    );
  }

  async ordered(): Promise<void> {
    const region = JSON.parse(await this.cli("region", "show", "--json"));
    if (region.last_revision !== region.ordered_revision) throw new Error(JSON.stringify(region));
  }

  async suspend(): Promise<void> {
    const { pid } = this.#process!;
    process.kill(pid!, "SIGSTOP");
    // A process of many threads stops a little later.
    while (!/\) T /.test(readFileSync(`/proc/${pid}/stat`, "utf8"))) await sleep(1);
  }

  resume(): void {
    if (this.#process) process.kill(this.#process.pid!, "SIGCONT");
  }

  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGCONT");
    child.kill("SIGKILL");
    await ended;
  }
}

/** Sites `a`, `b` and `c` with the causal keyspace `cars` (`car:`). The first is the root. */
export class Deployment {
  readonly sites: Site[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "portolan-sites-"));

  static async start(): Promise<Deployment> {
    const all = new Deployment();
    for (const name of "abc") {
      const [redis, grpc, peer] = [await freePort(), await freePort(), await freePort()];
      const site = new Site(all.#folder, name, redis, grpc, peer, all.sites.at(-1));
      all.sites.push(site);
      site.start();
      await eventually(() => site.cli("keyspace", "list"));
    }
    const how = ["--prefix", "car:", "--consistency", "causal", "--scope", "region"];
    await eventually(() =>
      all.sites[1]!.cli("keyspace", "create", "cars", ...how).catch((error: Error) => {
        if (!error.message.includes("has this name or prefix already")) throw error;
      }),
    );
    for (const site of all.sites) {
      await eventually(async () => {
        const [listed, region] = [await site.cli("keyspace", "list"), await site.cli("region", "show", "--json")];
        if (!listed.includes("causal") || !region.includes('"a"')) throw new Error(`${listed} ${region}`);
      });
    }
    return all;
  }

  /** After a test, also one that has failed: all sites run. */
  async startAll(): Promise<void> {
    for (const site of this.sites) {
      site.start();
      await eventually(() => site.cli("region", "show"));
    }
  }

  async stop(): Promise<void> {
    for (const site of this.sites) await site.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
