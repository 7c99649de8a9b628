"""Redis Cluster clients of redis-py that tell `portolan place` which keys they use, and how long each
server takes to answer them. `portolan_redis.asyncio` has the one for asyncio."""

from .cluster import RedisCluster
from .placement import Placement, Stats

__all__ = ["Placement", "RedisCluster", "Stats"]
