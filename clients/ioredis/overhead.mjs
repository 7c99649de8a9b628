// What this package costs against ioredis, in turn, nine times each.
//
// npm run build && node overhead.mjs HOST:PORT (a server of a cluster): CPU time of the client a GET, with counting
// … && node overhead.mjs session HOST:PORT [PID] (a site with a causal keyspace `car:`, and its process): CPU time of
//     the client and of the site, and the time that passes, a GET, with a session

import { readFileSync } from "node:fs";
import { Cluster as Plain, Redis } from "ioredis";
import { Cluster, Session } from "./dist/src/index.js";

const isSession = process.argv[2] === "session";
const [at, pid] = process.argv.slice(isSession ? 3 : 2);
const [host, port] = at.split(":");
const nodes = [{ host, port: Number(port) }];
const key = (n) => (isSession ? `car:${n % 1000}` : `{user${(n * 7) % 10_000}}:cart`);
const works = {
  single: [5_000, async (client, count) => {
    for (let n = 0; n < count; n++) await client.get(key(n));
  }],
  "16 at once": [32_000, async (client, count) => {
    for (let n = 0; n < count; n += 16) {
      await Promise.all(Array.from({ length: 16 }, (_, m) => client.get(key(n + m))));
    }
  }],
};
const costUs = async (work, client, count) => {
  // Of this process: what else runs on the machine disturbs it least.
  const began = process.cpuUsage();
  await work(client, count);
  const { user, system } = process.cpuUsage(began);
  return (user + system) / count;
};
const median = (values) => values.slice().sort((a, b) => a - b)[values.length >> 1];

const passingUs = async (work, client, count) => {
  const began = performance.now();
  await work(client, count);
  return ((performance.now() - began) / count) * 1000;
};
const siteUs = async (work, client, count) => {
  // In ticks of 10 ms.
  const used = () => {
    const [, fields] = /\) (.*)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"));
    return fields.split(" ").slice(11, 13).reduce((sum, ticks) => sum + Number(ticks), 0);
  };
  const began = used();
  await work(client, count);
  return ((used() - began) / count) * 10_000;
};
const compare = async (name, work, count, plain, ours, cost, word) => {
  for (const client of [plain, ours]) await cost(work, client, count);
  const pairs = [];
  for (let nth = 0; nth < 9; nth++) {
    pairs.push([await cost(work, plain, count), await cost(work, ours, count)]);
  }
  const costs = pairs.map(([a, b]) => 100 * (b / a - 1)).sort((a, b) => a - b);
  const [a, b] = [0, 1].map((one) => median(pairs.map((pair) => pair[one])).toFixed(1));
  const range = [median(costs), costs[0], costs[8]].map((cost) => cost.toFixed(1));
  console.log(`${name}: ${a} µs, ${word} ${b}; cost ${range[0]} % (${range[1]} to ${range[2]})`);
};

const plain = isSession ? new Redis(Number(port), host) : new Plain(nodes);
const ours = isSession ? new Session([at]) : new Cluster(nodes, { placement: { url: "http://127.0.0.1:1" } });
for (const [name, [count, work]] of Object.entries(works)) {
  if (!isSession) {
    await compare(name, work, count, plain, ours, costUs, "counting");
    continue;
  }
  await compare(`${name}, CPU of the client`, work, count, plain, ours, costUs, "session");
  await compare(`${name}, time passing`, work, count, plain, ours, passingUs, "session");
  if (pid) await compare(`${name}, CPU of the site`, work, count * 2, plain, ours, siteUs, "session");
}
await plain.quit();
await ours.quit();
