"""Counts where a request meets its server: at the connection.

Requests of all kinds pass here, those of pipelines, transactions and scripts too, and again when they
are redirected. An answer that redirects is no answer: the server that carries a request out gets its
latency, and the key is used once.
"""

from __future__ import annotations

import inspect
import select
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ResponseError,
    TryAgainError,
)

from .placement import Outbox
from .sketch import key_id

REDIRECTS = (MovedError, AskError, TryAgainError, ClusterDownError)

#: Answers to these come when something happens elsewhere.
_WAITING = frozenset(
    "BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP XREAD XREADGROUP WAIT WAITAOF".split()
)
_SCRIPTS = frozenset("EVAL EVALSHA EVAL_RO EVALSHA_RO FCALL FCALL_RO".split())
#: Begin with the number of keys.
_COUNTED = frozenset("ZUNION ZINTER ZDIFF ZINTERCARD SINTERCARD LMPOP ZMPOP".split())
#: The same behind a timeout.
_COUNTED_WAITING = frozenset("BLMPOP BZMPOP".split())
_STREAMS = frozenset("XREAD XREADGROUP".split())
#: Commands of two words, of which redis-py makes the first argument.
_TWO_WORDS = frozenset("OBJECT XINFO XGROUP MEMORY DEBUG".split())

#: Where a command has its key (0: nowhere; -1: behind STREAMS), where the number of its keys, whether its
#: latency tells of the way to the server.
Rule = tuple[int, int, bool]
_NONE: Rule = (0, 0, False)


def rule_of(name: str, commands: dict[str, Any]) -> Rule:
    """The rule of a command, by what the server reports of it (`COMMAND`)."""
    words = name.upper().split()
    if not words:
        return _NONE
    first = words[0]
    is_timed = first not in _WAITING
    if first == "PING":
        return (0, 0, True)
    if first in _SCRIPTS:
        return (3, 2, True)
    if first in _COUNTED_WAITING:
        return (3, 2, False)
    if first in _COUNTED:
        return (2, 1, True)
    if first in _STREAMS:
        return (-1, 0, is_timed)
    if len(words) > 1:
        return (1, 0, True) if first in _TWO_WORDS else _NONE
    known = commands.get(first.lower())
    if known is None or "pubsub" in known["flags"]:
        return _NONE
    return (max(known["first_key_pos"], 0), 0, is_timed)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, str)) else 0


class Counter:
    """Counts the requests of one client."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        #: What the server reports of its commands; there once the client is connected.
        self.commands: Callable[[], dict[str, Any]] = dict
        #: Addresses as the cluster has them, where the client reaches them by others.
        self.addresses: dict[str, str] = {}
        #: Answers until the next use is looked at. Threads may miscount it: it is random anyway.
        self.gap = 1
        self._rules: dict[Any, Rule] = {}
        self._counts = outbox.placement.counts

    def _rule(self, name: Any) -> Rule:
        text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        rule = rule_of(text, self.commands())
        if len(self._rules) < 1_000:
            self._rules[name] = rule
        return rule

    def answered(self, link: _Link, args: Sequence[Any], answer: Any) -> None:
        """A server has answered a request, and not by sending it elsewhere. Called where its latency is
        known, or where the use of its key is looked at."""
        position, count_at, is_timed = self._rules.get(args[0]) or self._rule(args[0])
        us = -1
        if is_timed and link.sent_at:
            us = int((perf_counter() - link.sent_at) * 1e6)
            # Answers that follow in the same batch have waited for this one.
            link.sent_at = 0.0
        is_looked_at = position and self.gap <= 0
        if us < 0 and not is_looked_at:
            return
        if self._counts is not None and args[0] != "PING" and not self._counts(args):
            return
        key = _key(args, position, count_at) if is_looked_at else None
        with self.outbox.lock:
            sketch = self.outbox.sketch
            if us >= 0:
                at = link.place
                if at < 0 or sketch.names[at] is not link.name:
                    # The first connection is older than what the cluster calls its server.
                    name = self.addresses.get(link.name, link.name)
                    link.place = at = sketch.server(name)
                    if at >= 0:
                        link.name = sketch.names[at]
                if at >= 0:
                    sketch.answered(at, us)
            if key is not None:
                size = max(max(map(_size, args)), _size(answer))
                self.gap = sketch.used(key_slot(key), key_id(key), size)

    def failed(self, link: _Link, error: ResponseError) -> None:
        """A server has answered with an error: to the request, or by sending it elsewhere."""
        self.gap -= 1
        if link.waiting:
            request = link.waiting.pop()
            if not isinstance(error, REDIRECTS):
                self.answered(link, request, None)


def _key(args: Sequence[Any], position: int, count_at: int) -> bytes | None:
    """The first key of a request: it waits once, however many keys it names."""
    try:
        if position < 0:
            position = 1 + next(
                at for at, word in enumerate(args) if word in ("STREAMS", b"STREAMS", "streams")
            )
        elif count_at and int(args[count_at]) == 0:
            return None
        key = args[position]
    except (LookupError, StopIteration, ValueError, TypeError):
        return None
    if isinstance(key, str):
        return key.encode(errors="surrogateescape")
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    return str(key).encode()


class _Link:
    """What a connection has recorded of its own requests."""

    __slots__ = ("is_batch", "name", "packed", "place", "sent_at", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = -1
        #: When the last batch went out; 0 once its latency is taken.
        self.sent_at = 0.0
        #: Requests without an answer, the oldest last.
        self.waiting: list[Sequence[Any]] = []
        self.packed: list[Sequence[Any]] = []
        self.is_batch = False


def _link(connection: Any, counter: Counter) -> _Link:
    name = f"{connection.host}:{connection.port}"
    return _Link(counter.addresses.get(name, name))


def _is_readable(sock: Any) -> bool:
    if sock is None:
        return False
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    # No limit on the number of the socket.
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class CountsSync:
    """Mixed into the class of a client's connections."""

    _counter: Counter
    #: Of the class that it is mixed into: a method found once is quicker than `super()` each time.
    _read: Callable[..., Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._link = _link(self, self._counter)

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        # The time to connect is not the way's.
        began = perf_counter() if self._sock else 0.0  # type: ignore[attr-defined]
        super().send_command(*args, **kwargs)  # type: ignore[misc]
        link = self._link
        link.waiting = [args]
        link.sent_at = began

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> Any:
        commands = list(commands)
        packed = super().pack_commands(commands)  # type: ignore[misc]
        self._link.packed = commands[::-1]
        return packed

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        link = self._link
        packed, link.packed = link.packed, []
        began = perf_counter() if self._sock else 0.0  # type: ignore[attr-defined]
        super().send_packed_command(command, check_health=check_health)  # type: ignore[misc]
        if packed:
            link.waiting, link.sent_at, link.is_batch = packed, began, True

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        link = self._link
        if not link.waiting:
            return self._read(*args, **kwargs)
        if link.is_batch:
            # A pipeline reads one server after the other: an answer that is here already has waited for
            # those of the others, and its latency is not known.
            link.is_batch = False
            if _is_readable(self._sock):  # type: ignore[attr-defined]
                link.sent_at = 0.0
        try:
            answer = self._read(*args, **kwargs)
        except ResponseError as error:
            self._counter.failed(link, error)
            raise
        counter = self._counter
        counter.gap -= 1
        if link.waiting:
            request = link.waiting.pop()
            if link.sent_at or counter.gap <= 0:
                counter.answered(link, request, answer)
        return answer


class CountsAsync:
    """The same for connections of asyncio."""

    _counter: Counter
    _read: Callable[..., Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._link = _link(self, self._counter)

    def pack_command(self, *args: Any) -> Any:
        packed = super().pack_command(*args)  # type: ignore[misc]
        self._link.packed = [args]
        return packed

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> Any:
        commands = list(commands)
        packed = super().pack_commands(commands)  # type: ignore[misc]
        self._link.packed = commands[::-1]
        return packed

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        link = self._link
        packed, link.packed = link.packed, []
        began = perf_counter() if self.is_connected else 0.0  # type: ignore[attr-defined]
        await super().send_packed_command(command, check_health=check_health)  # type: ignore[misc]
        link.waiting, link.sent_at = packed, began

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        link = self._link
        if not link.waiting:
            return await self._read(*args, **kwargs)
        try:
            answer = await self._read(*args, **kwargs)
        except ResponseError as error:
            self._counter.failed(link, error)
            raise
        counter = self._counter
        counter.gap -= 1
        if link.waiting:
            request = link.waiting.pop()
            if link.sent_at or counter.gap <= 0:
                counter.answered(link, request, answer)
        return answer


def counting(kind: Any, counter: Counter) -> Any:
    """A class of connections that counts, made of the one that a client would use."""
    if issubclass(kind, (CountsSync, CountsAsync)):
        return kind
    mixin = CountsAsync if inspect.iscoroutinefunction(kind.read_response) else CountsSync
    parts = {"_counter": counter, "_read": kind.read_response}
    return type(f"Counting{kind.__name__}", (mixin, kind), parts)
