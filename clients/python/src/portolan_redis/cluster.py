"""redis-py's `RedisCluster`, with the same interface, that reports to `portolan place`."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import redis.cluster

from .connection import Counter, counting
from .placement import Outbox, Placement, Stats, log

Remap = Callable[[tuple[str, int]], tuple[str, int]]


def remembering(remap: Remap | None, counter: Counter) -> Remap | None:
    """Keeps what the cluster calls a server that this client reaches by another address."""
    if remap is None:
        return None

    def remembered(address: tuple[str, int]) -> tuple[str, int]:
        host, port = remap(address)
        counter.addresses[f"{host}:{port}"] = f"{address[0]}:{address[1]}"
        return host, port

    return remembered


class RedisCluster(redis.cluster.RedisCluster):
    """A `redis.cluster.RedisCluster`; `placement` sets where sketches go, None counts nothing."""

    def __init__(self, *args: Any, placement: Placement | None = None, **kwargs: Any) -> None:
        self._reporter: _Reporter | None = None
        if placement is None:
            super().__init__(*args, **kwargs)
            return
        counter = Counter(Outbox(placement))
        if "address_remap" in kwargs:
            kwargs["address_remap"] = remembering(kwargs["address_remap"], counter)
        super().__init__(*args, **kwargs)
        parser = self.commands_parser
        counter.commands = lambda: parser.commands
        _count_all(self.nodes_manager, counter)
        self._reporter = _Reporter(self, counter)

    @property
    def placement_stats(self) -> Stats | None:
        """What became of the sketches."""
        return self._reporter.outbox.stats if self._reporter else None

    def close(self) -> None:
        """Sends what was counted, stops reporting, and closes as ever."""
        reporter = getattr(self, "_reporter", None)
        if reporter is not None:
            reporter.stop(flush=True)
        super().close()

    def __del__(self) -> None:
        # A collected client waits for nothing.
        reporter = getattr(self, "_reporter", None)
        if reporter is not None:
            reporter.stop(flush=False)
        super().__del__()  # type: ignore[no-untyped-call]


def _count_all(nodes_manager: Any, counter: Counter) -> None:
    """Makes all connections of a client count, those to servers of later too."""
    create = nodes_manager.create_redis_node

    def create_counting(*args: Any, **kwargs: Any) -> Any:
        node = create(*args, **kwargs)
        pool = node.connection_pool
        pool.connection_class = counting(pool.connection_class, counter)
        return node

    nodes_manager.create_redis_node = create_counting
    nodes = [*nodes_manager.nodes_cache.values(), *nodes_manager.startup_nodes.values()]
    for node in nodes:
        if node.redis_connection is not None:
            pool = node.redis_connection.connection_pool
            pool.connection_class = counting(pool.connection_class, counter)
            # What the first look at the cluster has opened.
            pool.disconnect()
            pool.reset()


def _run_each(
    client: weakref.ref[Any], stopped: threading.Event, job: Callable[[], None], period_s: float
) -> None:
    while not stopped.wait(period_s) and client() is not None:
        try:
            job()
        except Exception as error:
            log.debug("reporting failed: %s", error)


class _Reporter:
    """Two threads: one sends sketches, one sends PINGs. They end with the client, and with the process."""

    _all: weakref.WeakSet[_Reporter] = weakref.WeakSet()

    def __init__(self, client: RedisCluster, counter: Counter) -> None:
        self.outbox = counter.outbox
        self._addresses = counter.addresses
        self._client = weakref.ref(client)
        self._turn = -1
        self._start()
        _Reporter._all.add(self)

    def _start(self) -> None:
        self._stopped = threading.Event()
        placement = self.outbox.placement
        jobs = [(self.outbox.flush, placement.window_s)]
        if placement.pings_per_s > 0:
            jobs.append((self._ping_one, 1 / placement.pings_per_s))
        for job, period_s in jobs:
            work = (self._client, self._stopped, job, period_s)
            threading.Thread(target=_run_each, args=work, name="portolan-redis", daemon=True).start()

    def _ping_one(self) -> None:
        client, outbox = self._client(), self.outbox
        if client is None:
            return
        masters = client.get_primaries()  # type: ignore[no-untyped-call]
        names = [self._addresses.get(node.name, node.name) for node in masters]
        at = outbox.next_unused(names, self._turn)
        if at is None:
            return
        self._turn = at
        outbox.stats.pings += 1
        try:
            client.get_redis_connection(masters[at]).ping()
        except Exception:
            outbox.stats.pings_failed += 1

    def stop(self, flush: bool) -> None:
        if self._stopped.is_set():
            return
        self._stopped.set()
        if flush:
            self.outbox.flush()

    @staticmethod
    def _after_fork() -> None:
        # Threads stay with the parent, and what it counted.
        for one in list(_Reporter._all):
            if not one._stopped.is_set():
                one.outbox.begin_anew()
                one._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Reporter._after_fork)
