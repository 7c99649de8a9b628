// What counting costs: CPU time a GET with ioredis and with this package, in turn, nine times each.
//
// npm run build && node overhead.mjs HOST:PORT (a server of a cluster)

import { Cluster as Plain } from "ioredis";
import { Cluster } from "./dist/src/index.js";

const [host, port] = process.argv[2].split(":");
const nodes = [{ host, port: Number(port) }];
const key = (n) => `{user${(n * 7) % 10_000}}:cart`;
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

const plain = new Plain(nodes);
const counting = new Cluster(nodes, { placement: { url: "http://127.0.0.1:1" } });
for (const [name, [count, work]] of Object.entries(works)) {
  for (const client of [plain, counting]) await costUs(work, client, count);
  const pairs = [];
  for (let nth = 0; nth < 9; nth++) {
    pairs.push([await costUs(work, plain, count), await costUs(work, counting, count)]);
  }
  const costs = pairs.map(([a, b]) => 100 * (b / a - 1)).sort((a, b) => a - b);
  const [a, b] = [0, 1].map((one) => median(pairs.map((pair) => pair[one])).toFixed(1));
  const range = [median(costs), costs[0], costs[8]].map((cost) => cost.toFixed(1));
  console.log(`${name}: ${a} µs, counting ${b}; cost ${range[0]} % (${range[1]} to ${range[2]})`);
}
await plain.quit();
await counting.quit();
