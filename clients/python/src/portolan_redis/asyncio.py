"""For asyncio: `Session`, and the `RedisCluster` of `redis.asyncio` that reports to `portolan place`."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import redis.asyncio.cluster
from redis.asyncio.connection import Connection

from .cluster import remembering
from .connection import Counter, counting
from .placement import Outbox, Placement, Stats, log
from .session_asyncio import Session

__all__ = ["RedisCluster", "Session"]


class RedisCluster(redis.asyncio.cluster.RedisCluster):
    """A `redis.asyncio.cluster.RedisCluster`; `placement` sets where sketches go, None counts nothing."""

    def __init__(self, *args: Any, placement: Placement | None = None, **kwargs: Any) -> None:
        self._counter: Counter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        if placement is None:
            super().__init__(*args, **kwargs)
            return
        self._counter = counter = Counter(Outbox(placement))
        if "address_remap" in kwargs:
            kwargs["address_remap"] = remembering(kwargs["address_remap"], counter)
        super().__init__(*args, **kwargs)
        parser = self.commands_parser
        counter.commands = lambda: parser.commands
        # All servers' connections are made by these; none exists before the client is initialized.
        settings = self.nodes_manager.connection_kwargs
        kind = counting(settings.get("connection_class", Connection), counter)
        settings["connection_class"] = kind
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_class = kind

    @property
    def placement_stats(self) -> Stats | None:
        """What became of the sketches."""
        return self._counter.outbox.stats if self._counter else None

    async def initialize(self, *args: Any, **kwargs: Any) -> RedisCluster:
        await super().initialize(*args, **kwargs)
        if self._counter is not None and not self._tasks:
            placement = self._counter.outbox.placement
            client = weakref.ref(self)
            self._tasks = [asyncio.create_task(_send_each(client, placement.window_s))]
            if placement.pings_per_s > 0:
                pings = _ping_each(client, 1 / placement.pings_per_s)
                self._tasks.append(asyncio.create_task(pings))
        return self

    async def aclose(self) -> None:
        """Sends what was counted, stops reporting, and closes as ever."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks and self._counter is not None:
            await asyncio.to_thread(self._counter.outbox.flush)
        await super().aclose()


async def _send_each(client: weakref.ref[RedisCluster], period_s: float) -> None:
    while True:
        await asyncio.sleep(period_s)
        if (here := client()) is None or here._counter is None:
            return
        outbox = here._counter.outbox
        del here
        await asyncio.to_thread(outbox.flush)


async def _ping_each(client: weakref.ref[RedisCluster], period_s: float) -> None:
    turn = -1
    while True:
        await asyncio.sleep(period_s)
        if (here := client()) is None or here._counter is None:
            return
        outbox, addresses = here._counter.outbox, here._counter.addresses
        masters = here.get_primaries()
        del here
        names = [addresses.get(node.name, node.name) for node in masters]
        at = outbox.next_unused(names, turn)
        if at is None:
            continue
        turn = at
        outbox.stats.pings += 1
        try:
            await masters[at].execute_command("PING")
        except Exception as error:
            outbox.stats.pings_failed += 1
            log.debug("a PING failed: %s", error)
