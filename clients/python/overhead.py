"""What counting costs: CPU time a GET with redis-py and with this package, in turn, nine times each.

python overhead.py HOST:PORT (a server of a cluster)
"""

import sys
import time
from statistics import median

import redis.cluster

import portolan_redis

HOST, PORT = sys.argv[1].rsplit(":", 1)
KEYS = [f"{{user{n}}}:cart" for n in range(10_000)]


def single(client, count):
    for n in range(count):
        client.get(KEYS[n * 7 % len(KEYS)])


def pipelined(client, count):
    for n in range(0, count, 16):
        pipeline = client.pipeline()
        for m in range(n, n + 16):
            pipeline.get(KEYS[m * 7 % len(KEYS)])
        pipeline.execute()


def cost_us(work, client, count):
    # Of this process: what else runs on the machine disturbs it least.
    began = time.process_time()
    work(client, count)
    return (time.process_time() - began) / count * 1e6


address = {"host": HOST, "port": int(PORT)}
placement = portolan_redis.Placement("http://127.0.0.1:1")
plain = redis.cluster.RedisCluster(**address)
counting = portolan_redis.RedisCluster(**address, placement=placement)
for name, work, count in (("single", single, 4_000), ("pipeline of 16", pipelined, 8_000)):
    cost_us(work, plain, count), cost_us(work, counting, count)
    pairs = [(cost_us(work, plain, count), cost_us(work, counting, count)) for _ in range(9)]
    costs = sorted(100 * (b / a - 1) for a, b in pairs)
    print(f"{name}: {median(a for a, _ in pairs):.1f} µs, counting {median(b for _, b in pairs):.1f}; "
          f"cost {median(costs):.1f} % ({costs[0]:.1f} to {costs[-1]:.1f})")
