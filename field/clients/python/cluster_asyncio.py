"""What cluster.py does, through `redis.asyncio.RedisCluster`: with PORTOLAN_SKETCHES (a URL) that of clients/python."""

import asyncio
import os

from redis.asyncio.cluster import ClusterNode, RedisCluster

SKETCHES = os.environ.get("PORTOLAN_SKETCHES")
more = {}
if SKETCHES:
    import portolan_redis
    import portolan_redis.asyncio

    assert issubclass(portolan_redis.asyncio.RedisCluster, RedisCluster)
    RedisCluster = portolan_redis.asyncio.RedisCluster
    # A sketch that comes late on a slow machine is not dropped.
    placement = portolan_redis.Placement(SKETCHES, token="secret", window_s=0.5, deadline_s=60)
    more = {"placement": placement}

HOST, PORT = os.environ["PORTOLAN_REDIS"].rsplit(":", 1)
PREFIX = os.environ["PORTOLAN_PREFIX"]
KEYS = 300
#: A server's pool has a hundred connections.
AT_ONCE = 50


async def go_over_keys(cluster: RedisCluster, rounds: int) -> None:
    for key in range(KEYS):
        name = f"{PREFIX}{key}"
        assert await cluster.set(name, f"{rounds}"), name
        seen = await cluster.get(name)
        assert seen == f"{rounds}", f"{name} holds {seen!r} in round {rounds}"
    counts = []
    for first in range(0, KEYS, AT_ONCE):
        some = range(first, first + AT_ONCE)
        counts += await asyncio.gather(*(cluster.incr(f"{PREFIX}n{key}") for key in some))
    assert counts == [rounds] * KEYS, f"{counts} in round {rounds}"
    tagged = {f"{PREFIX}{{m}}{key}": rounds for key in range(10)}
    assert await cluster.mset(tagged)
    assert await cluster.mget(list(tagged)) == [f"{rounds}"] * 10


async def main() -> None:
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
        await go_over_keys(cluster, rounds)
        if rounds == 1:
            open(os.environ["PORTOLAN_STARTED"], "w").close()
    for key in range(KEYS):
        seen = (await cluster.get(f"{PREFIX}{key}"), await cluster.get(f"{PREFIX}n{key}"))
        assert seen == (f"{rounds}", f"{rounds}"), f"{key}: {seen} instead of {rounds}"
    masters = len(cluster.get_primaries())
    print(f"redis-py with asyncio: {rounds} rounds of {KEYS} keys, {masters} masters")
    assert masters == int(os.environ["PORTOLAN_MASTERS"])
    await cluster.aclose()
    if SKETCHES:
        print(cluster.placement_stats)
        assert cluster.placement_stats.sent > 0 and cluster.placement_stats.dropped == 0


asyncio.run(main())
