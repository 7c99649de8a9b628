"""`Session` for asyncio: the same as without, and `session` explains it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import redis.asyncio
import redis.asyncio.client
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from .errors import REFUSED, BadToken, Lost, NoSite, SessionError, named
from .puts import Put, Unnumbered, ends, first_failed, is_put
from .roaming import Address, Addresses, Sites, log
from .session import (
    FAILURES,
    PAUSE_S,
    Carrier,
    Place,
    SessionStats,
    attach_request,
    is_read,
    judged,
    later_request,
    limited,
    lost,
    with_token,
)


class _Carries:
    """A connection that asks for the token behind each request, once the site has admitted the session."""

    _read: Callable[..., Any]
    _carrier: Carrier | None = None
    #: Answers to come before the token.
    _awaited = 0

    def carry(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def pack_command(self, *args: Any) -> Any:
        packed = super().pack_command(*args)  # type: ignore[misc]
        if self._carrier is None:
            return packed
        self._awaited = 1
        return with_token(list(packed))

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> Any:
        commands = list(commands)
        # The base packs one by one with `pack_command`.
        carrier, self._carrier = self._carrier, None
        packed = super().pack_commands(commands)  # type: ignore[misc]
        self._carrier = carrier
        if carrier is None or not commands:
            return packed
        self._awaited = len(commands)
        return with_token(list(packed))

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        check_health = check_health and self._carrier is None
        await super().send_packed_command(command, check_health=check_health)  # type: ignore[misc]

    async def disconnect(self, *args: Any, **kwargs: Any) -> None:
        self._carrier, self._awaited = None, 0
        await super().disconnect(*args, **kwargs)  # type: ignore[misc]

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        if self._awaited != 1:
            if self._awaited:
                self._awaited -= 1
            return await self._read(*args, **kwargs)
        self._awaited = 0
        try:
            answer = await self._read(*args, **kwargs)
        except ResponseError:
            await self._take_token()
            raise
        await self._take_token()
        return answer

    async def _take_token(self) -> None:
        carrier = self._carrier
        token = await self._read(disable_decoding=True)
        if carrier is not None:
            carrier.token = token


class _OneConnection(ConnectionPool):
    """A pool with the session's one connection, which is at the session's site whenever one asks for it."""

    def __init__(self, sites: Sites, token: bytes | None) -> None:
        kind: Any = SSLConnection if sites.has_tls else Connection
        carrying = type(f"Carrying{kind.__name__}", (_Carries, kind), {"_read": kind.read_response})
        options = {**sites.options, "retry": Retry(NoBackoff(), 0)}
        quiet = MaintNotificationsConfig(enabled=False)
        super().__init__(connection_class=carrying, maint_notifications_config=quiet, **options)
        self.place = Place(sites, token)
        self._here: Any = None

    async def get_connection(self, *_: Any, **__: Any) -> Any:
        if self._here is not None and await _is_quiet(self._here):
            if self.place.should_look():
                await self._look()
            return self._here
        # Closed by the other side, or with an answer that was given up.
        await self.leave()
        return await self._open()

    async def release(self, connection: Any) -> None:
        """It stays the session's."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await self.leave()

    async def leave(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            await here.disconnect(nowait=True)

    async def _look(self) -> None:
        place = self.place
        if (nearer := place.nearer()) is not None:
            try:
                await self.move_to(nearer, place.sites.roaming.wait_s)
            except (RedisError, OSError) as error:
                log.debug("%s is nearer and does not take the session: %s", nearer, error)
                assert place.site is not None
                place.stays(place.site)

    async def move_to(self, site: str, within_s: float) -> None:
        """Goes on at another site; if that is not possible, the session stays where it is."""
        ends = time.monotonic() + within_s
        error: Exception | None = None
        for node in self.place.sites.nodes[site]:
            try:
                there = await self._attach(node, ends - time.monotonic())
            except (RedisError, OSError) as why:
                error = error or why
                continue
            await self.leave()
            self._here = there
            self.place.stays(site)
            self.place.stats.moves += 1
            return
        assert error is not None
        raise error

    async def _open(self) -> Any:
        lack: SessionError | None = None
        why: Exception | None = None
        place = self.place
        place.sites.watch()
        while True:
            for site, node in place.nodes_in_turn():
                if (left := place.left_s()) <= 0:
                    break
                try:
                    self._here = await self._attach(node, left)
                    place.stays(site)
                    return self._here
                except (Lost, BadToken, *REFUSED):
                    raise
                except SessionError as error:
                    lack = error
                except (RedisError, OSError) as error:
                    why = error
            if place.is_over():
                raise lack or NoSite(f"no site takes the session within the deadline: {why}")
            await asyncio.sleep(PAUSE_S)

    async def _attach(self, node: Address, within_s: float) -> Any:
        """A connection to a node that has all that the session has seen."""
        there = self.connection_class(host=node[0], port=node[1], **self.connection_kwargs)
        began = time.monotonic()
        try:
            await there.connect()
            if (token := self.place.carrier.token) is not None:
                await there.send_command(*attach_request(token, within_s), check_health=False)
                try:
                    # A site answers at the end of what it was given, not before.
                    await there.read_response(timeout=within_s + (there.socket_timeout or 0.0))
                except ResponseError as error:
                    raise named(error) from None
                self.place.attached(began)
        except BaseException:
            await there.disconnect(nowait=True)
            raise
        there.carry(self.place.carrier)
        return there


    async def begin_at(self, node: Address, limit_s: float) -> Any:
        """A connection to a node that need not have what the session has seen: each request waits for that."""
        there = self.connection_class(
            host=node[0], port=node[1], **limited(self.connection_kwargs, limit_s)
        )
        try:
            await there.connect()
            if (token := self.place.carrier.token) is not None:
                await there.send_command(*later_request(token), check_health=False)
                await there.read_response()
        except BaseException:
            await there.disconnect(nowait=True)
            raise
        there.carry(self.place.carrier)
        return there


async def _is_quiet(connection: Any) -> bool:
    try:
        return connection.is_connected and not await connection.can_read()
    except RedisError:
        return False


class Session(redis.asyncio.Redis):
    """A `redis.asyncio.Redis` that is one session with the causal keyspaces of a deployment, at whatever site
    it is. Its calls follow one another, also those of several tasks. `token`: of the session to go on with."""

    connection_pool: _OneConnection

    def __init__(
        self, sites: Sites | Addresses, *, token: str | bytes | None = None, deadline_s: float = 5.0
    ) -> None:
        sites = sites if isinstance(sites, Sites) else Sites(sites)
        carried = token.encode() if isinstance(token, str) else token
        self._turn = asyncio.Lock()
        self.deadline_s = deadline_s
        super().__init__(connection_pool=_OneConnection(sites, carried))
        self.auto_close_connection_pool = True

    @property
    def token(self) -> str | None:
        """What the session has seen, for another process or site; None: nothing."""
        token = self.connection_pool.place.carrier.token
        return None if token is None else token.decode()

    @property
    def site(self) -> str | None:
        """The name of the site in use."""
        return self.connection_pool.place.site

    @property
    def session_stats(self) -> SessionStats:
        """How the session has moved."""
        return self.connection_pool.place.stats

    async def move_to(self, site: str, within_s: float = 2.0) -> None:
        """Goes on at this site, and stays where it is if that raises."""
        async with self._turn:
            await self.connection_pool.move_to(site, within_s)

    async def begin_anew(self) -> None:
        """Forgets what the session has seen: a new one begins."""
        async with self._turn:
            await self.connection_pool.leave()
            self.connection_pool.place.carrier.token = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        def work() -> Awaitable[Any]:
            return super(Session, self).execute_command(*args, **options)

        place = self.connection_pool.place
        if not (place.sites.go_elsewhere(place.site) and is_put(args, self.get_encoder().encode)):
            return await self._repeat(work, is_read(args), refused_whole=True)
        async with self._turn:
            try:
                return await self._put(Put(place.numbers.next(), args), options)
            except Unnumbered as error:
                site, why = place.site, error
            answer = await self._repeat_in_turn(work, reads=False, refused_whole=True)
            place.refused_number(site, why)
            return answer

    async def _put(self, put: Put, options: dict[str, Any]) -> Any:
        """Makes a put at the session's site, and asks for it at all sites if it was sent there in vain."""
        pool, place = self.connection_pool, self.connection_pool.place
        place.begins(self.deadline_s)
        while True:
            here = await pool.get_connection()
            try:
                return await self._send_command_parse_response(
                    here, put.name, *put.first_at(place.site), **options
                )
            except FAILURES as error:
                was_sent, shown = first_failed(error)
                if shown is None and not was_sent and time.monotonic() >= place.deadline:
                    shown = error
                if shown is not None:
                    raise shown from (None if shown is error else error)
                place.failed(error)
                await pool.leave()
                if was_sent:
                    return await self._put_again(put, options, error)
                place.stats.repeats += 1

    async def _put_again(self, put: Put, options: dict[str, Any], why: Exception) -> Any:
        """Asks for a put that was sent in vain: at each node of its site once more, unless that is silent, and
        at the others in turn. The session goes on where it gets the answer, and has yet to attach there."""
        pool, place = self.connection_pool, self.connection_pool.place
        while True:
            for site, node in place.nodes_in_turn():
                if (left := place.rest_s()) <= 0:
                    break
                place.stats.repeats += 1
                try:
                    there = await pool.begin_at(node, left)
                    try:
                        answer = await self._send_command_parse_response(
                            there, put.name, *put.again(), **options
                        )
                    finally:
                        await there.disconnect(nowait=True)
                except FAILURES as error:
                    why = error
                    if ends(error):
                        raise lost(why) from error
                    continue
                place.site = site
                return answer
            if place.is_over():
                raise lost(why) from why
            await asyncio.sleep(PAUSE_S)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> SessionPipeline:
        return SessionPipeline(self, transaction, shard_hint)

    def pubsub(self, **kwargs: Any) -> Any:
        raise NotImplementedError("subscriptions belong to no session: use a redis.asyncio.Redis")

    def monitor(self) -> Any:
        raise NotImplementedError("MONITOR belongs to no session: use a redis.asyncio.Redis")

    async def _repeat(
        self, work: Callable[[], Awaitable[Any]], reads: bool, refused_whole: bool
    ) -> Any:
        async with self._turn:
            return await self._repeat_in_turn(work, reads, refused_whole)

    async def _repeat_in_turn(
        self, work: Callable[[], Awaitable[Any]], reads: bool, refused_whole: bool
    ) -> Any:
        pool = self.connection_pool
        pool.place.begins(self.deadline_s)
        while True:
            try:
                return await work()
            except FAILURES as error:
                failed, shown = judged(error, reads, refused_whole)
                if failed:
                    pool.place.failed(error)
                    await pool.leave()
                if shown is None and time.monotonic() >= pool.place.deadline:
                    shown = error
                if shown is not None:
                    raise shown from (None if shown is error else error)
                pool.place.stats.repeats += 1


class SessionPipeline(redis.asyncio.client.Pipeline):
    """A pipeline or transaction of a session: sent to one site, as one packet."""

    def __init__(self, session: Session, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(session.connection_pool, session.response_callbacks, transaction, shard_hint)
        self._session = session

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, explicit = list(self.command_stack), self.explicit_transaction
        is_transaction = bool(self.is_transaction or explicit)

        def work() -> Awaitable[list[Any]]:
            self.command_stack, self.explicit_transaction = list(stack), explicit
            return super(SessionPipeline, self).execute(raise_on_error)

        reads = all(is_read(args) for args, _ in stack)
        answers = await self._session._repeat(work, reads, refused_whole=is_transaction)
        return [named(one) if isinstance(one, ResponseError) else one for one in answers]
