"""Counters and values in all slots, through an unmodified redis-py RedisCluster, while slots move.

PORTOLAN_REDIS states where one node's cluster port is (host:port), PORTOLAN_RESP which protocol (2 or
3), PORTOLAN_PREFIX what keys begin with. When it has gone over its keys once it makes the file
PORTOLAN_STARTED, and goes on until the file PORTOLAN_STOP is there. Nothing may go wrong but what the
client repairs by itself, and at the end every key holds what was written last and every counter what
was added. With PORTOLAN_SKETCHES (a URL) the client is that of clients/python, and its sketches must arrive.
"""

import os

from redis.cluster import ClusterNode, RedisCluster

SKETCHES = os.environ.get("PORTOLAN_SKETCHES")
more = {}
if SKETCHES:
    import portolan_redis

    assert issubclass(portolan_redis.RedisCluster, RedisCluster)
    RedisCluster = portolan_redis.RedisCluster
    # A sketch that comes late on a slow machine is not dropped.
    placement = portolan_redis.Placement(SKETCHES, token="secret", window_s=0.5, deadline_s=60)
    more = {"placement": placement}

HOST, PORT = os.environ["PORTOLAN_REDIS"].rsplit(":", 1)
PREFIX = os.environ["PORTOLAN_PREFIX"]
KEYS = 300

cluster = RedisCluster(
    startup_nodes=[ClusterNode(HOST, int(PORT))],
    protocol=int(os.environ.get("PORTOLAN_RESP", "3")),
    decode_responses=True,
    socket_timeout=20,
    **more,
)
rounds = 0
while rounds == 0 or not os.path.exists(os.environ["PORTOLAN_STOP"]):
    rounds += 1
    for key in range(KEYS):
        name = f"{PREFIX}{key}"
        assert cluster.set(name, f"{rounds}"), name
        seen = cluster.get(name)
        assert seen == f"{rounds}", f"{name} holds {seen!r} in round {rounds}"
    with cluster.pipeline() as pipeline:
        for key in range(KEYS):
            pipeline.incr(f"{PREFIX}n{key}")
        counts = pipeline.execute()
    assert counts == [rounds] * KEYS, f"{counts} in round {rounds}"
    tagged = {f"{PREFIX}{{m}}{key}": rounds for key in range(10)}
    assert cluster.mset(tagged)
    assert cluster.mget(list(tagged)) == [f"{rounds}"] * 10
    if rounds == 1:
        open(os.environ["PORTOLAN_STARTED"], "w").close()

for key in range(KEYS):
    seen = (cluster.get(f"{PREFIX}{key}"), cluster.get(f"{PREFIX}n{key}"))
    assert seen == (f"{rounds}", f"{rounds}"), f"{key}: {seen} instead of {rounds}"
masters = len(cluster.get_primaries())
print(f"redis-py: {rounds} rounds of {KEYS} keys, {masters} masters")
assert masters == int(os.environ["PORTOLAN_MASTERS"])
cluster.close()
if SKETCHES:
    print(cluster.placement_stats)
    assert cluster.placement_stats.sent > 0 and cluster.placement_stats.dropped == 0
