"""Clients of redis-py for Portolan: `Session`, with causal keyspaces at whatever site is near, and a
`RedisCluster` that reports to `portolan place`. `portolan_redis.asyncio` has both for asyncio."""

from .cluster import RedisCluster
from .errors import BadToken, Behind, Lost, NoSite, SessionError, UnknownOutcome, Unordered
from .placement import Placement, Stats
from .roaming import Roaming, Sites
from .session import Session, SessionStats

__all__ = [
    "BadToken",
    "Behind",
    "Lost",
    "NoSite",
    "Placement",
    "RedisCluster",
    "Roaming",
    "Session",
    "SessionError",
    "SessionStats",
    "Sites",
    "Stats",
    "UnknownOutcome",
    "Unordered",
]
