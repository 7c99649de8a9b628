"""What this package costs against redis-py, in turn, nine times each.

python overhead.py HOST:PORT (a server of a cluster): CPU time of the client a GET, with counting
python overhead.py session HOST:PORT [PID] (a site with a causal keyspace `car:`, and its process): CPU time of the
    client and of the site, and the time that passes, a GET and a SET, with a session
"""

import os
import sys
import time
from statistics import median

import redis.cluster

import portolan_redis

IS_SESSION = sys.argv[1] == "session"
HOST, PORT = sys.argv[2 if IS_SESSION else 1].rsplit(":", 1)
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


def compare(name, plain, ours, count, cost=cost_us, word="counting"):
    cost(*plain, count), cost(*ours, count)
    pairs = [(cost(*plain, count), cost(*ours, count)) for _ in range(9)]
    costs = sorted(100 * (b / a - 1) for a, b in pairs)
    print(f"{name}: {median(a for a, _ in pairs):.1f} µs, {word} {median(b for _, b in pairs):.1f}; "
          f"cost {median(costs):.1f} % ({costs[0]:.1f} to {costs[-1]:.1f})")


def count_cluster():
    address = {"host": HOST, "port": int(PORT)}
    placement = portolan_redis.Placement("http://127.0.0.1:1")
    plain = redis.cluster.RedisCluster(**address)
    counting = portolan_redis.RedisCluster(**address, placement=placement)
    for name, work, count in (("single", single, 4_000), ("pipeline of 16", pipelined, 8_000)):
        compare(name, (work, plain), (work, counting), count)


def passing_us(work, client, count):
    began = time.perf_counter()
    work(client, count)
    return (time.perf_counter() - began) / count * 1e6


def site_us(work, client, count):
    def used_s():
        with open(f"/proc/{sys.argv[3]}/stat") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    began = used_s()
    work(client, count)
    return (used_s() - began) / count * 1e6


def gets(client, count):
    for n in range(count):
        client.get(f"car:{n % 1000}")


def sets(client, count):
    for n in range(count):
        client.set(f"car:{n % 1000}", "Pier 39")


def gets_of_16(client, count):
    for n in range(0, count, 16):
        pipeline = client.pipeline(transaction=False)
        for m in range(n, n + 16):
            pipeline.get(f"car:{m % 1000}")
        pipeline.execute()


def session():
    plain = redis.Redis(HOST, int(PORT))
    ours = portolan_redis.Session([f"{HOST}:{PORT}"])
    sets(plain, 1000)
    for name, work, count in (("GET", gets, 4_000), ("GET, 16 a pipeline", gets_of_16, 16_000), ("SET", sets, 100)):
        compare(f"{name}, CPU of the client", (work, plain), (work, ours), count, cost_us, "session")
        compare(f"{name}, time passing", (work, plain), (work, ours), count, passing_us, "session")
        if len(sys.argv) > 3:
            compare(f"{name}, CPU of the site", (work, plain), (work, ours), count * 2, site_us, "session")


if IS_SESSION:
    session()
else:
    count_cluster()
