"""Sessions with causal keyspaces that move among sites by themselves.

A session takes its token along unseen. Each request, each pipeline and each transaction is sent with a
PORTOLAN.TOKEN behind it, in the same packet: the answer brings the token, and no round trip is added.
An answer is not given to the application before its token is here, so a site that fails at any moment
takes nothing along that the application has seen.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.client
from redis.connection import ConnectionPool
from redis.exceptions import BusyLoadingError, ClusterDownError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from .errors import REFUSED, BadToken, Lost, NoSite, SessionError, UnknownOutcome, named
from .puts import Numbers, Put, Unnumbered, ends, first_failed, is_put
from .roaming import READS, Address, Addresses, Sites, log

ASK_TOKEN = b"*1\r\n$14\r\nPORTOLAN.TOKEN\r\n"
#: What a site may wait at once for what it lacks, before the next one is asked.
ATTACH_S = 0.5
#: Between two rounds over all sites.
PAUSE_S = 0.05
#: Between two looks whether another site is nearer.
LOOK_S = 1.0

FAILURES = (RedisError, OSError)


class Carrier:
    """What both sides of a session share: its token, as the last answer brought it."""

    __slots__ = ("token",)

    def __init__(self, token: bytes | None) -> None:
        self.token = token


class Carries:
    """A connection that asks for the token behind each request, once the site has admitted the session."""

    _read: Callable[..., Any]
    _carrier: Carrier | None = None
    #: Answers to come before the token.
    _awaited = 0

    def carry(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        if self._carrier is None:
            super().send_command(*args, **kwargs)  # type: ignore[misc]
            return
        packed = with_token(self._command_packer.pack(*args))  # type: ignore[attr-defined]
        self._awaited = 1
        super().send_packed_command(packed, check_health=False)  # type: ignore[misc]

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> Any:
        commands = list(commands)
        packed = super().pack_commands(commands)  # type: ignore[misc]
        if self._carrier is None or not commands:
            return packed
        self._awaited = len(commands)
        return with_token(packed)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        # A PING here, between the packing of a request and its sending, would use up `_awaited`, and the
        # token would stay unread. `is_quiet` has looked at the connection already.
        check_health = check_health and self._carrier is None
        super().send_packed_command(command, check_health=check_health)  # type: ignore[misc]

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        self._carrier, self._awaited = None, 0
        super().disconnect(*args, **kwargs)  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        if self._awaited != 1:
            if self._awaited:
                self._awaited -= 1
            return self._read(*args, **kwargs)
        self._awaited = 0
        try:
            answer = self._read(*args, **kwargs)
        except ResponseError:
            self._take_token()
            raise
        self._take_token()
        return answer

    def _take_token(self) -> None:
        carrier = self._carrier
        token = self._read(disable_decoding=True)
        if carrier is not None:
            carrier.token = token


def with_token(packed: list[Any]) -> list[Any]:
    """The same request with the question for the token: in one piece, or it would be a packet of its own."""
    last = packed[-1]
    return [*packed[:-1], last + ASK_TOKEN] if isinstance(last, bytes) else [*packed, ASK_TOKEN]


def carrying(kind: Any) -> Any:
    """A class of connections that carries tokens, made of the one that a client would use."""
    return type(f"Carrying{kind.__name__}", (Carries, kind), {"_read": kind.read_response})


@dataclass
class SessionStats:
    """How a session has moved."""

    #: To another site or node, also to come back to one that had failed.
    attaches: int = 0
    #: Moves to a nearer site, or by `move_to`.
    moves: int = 0
    #: What attaching took, together and at most.
    attach_s: float = 0.0
    attach_s_max: float = 0.0
    #: Reads that were sent again, and writes that were refused without effect and sent again; attempts of puts
    #: that may have been made.
    repeats: int = 0


class Place:
    """Where a session is, and when it looks for a nearer site: the same with asyncio and without."""

    def __init__(self, sites: Sites, token: bytes | None) -> None:
        self.sites = sites
        self.carrier = Carrier(token)
        self.stats = SessionStats()
        self.numbers = Numbers()
        self.site: str | None = None
        self.deadline = 0.0
        #: A site that did not answer in time in this call, or does not serve: it comes last.
        self.last: str | None = None
        self._stay_until = 0.0
        self._look_at = 0.0

    def begins(self, deadline_s: float) -> None:
        """A call begins."""
        self.deadline, self.last = time.monotonic() + deadline_s, None

    def nodes_in_turn(self) -> list[tuple[str, Address]]:
        return self.sites.in_turn(self.site, self.last)

    def left_s(self) -> float:
        """What is left of the call, at most what one site is given at once."""
        return min(self.deadline - time.monotonic(), ATTACH_S)

    def rest_s(self) -> float:
        """All that is left of the call."""
        return self.deadline - time.monotonic()

    def is_over(self) -> bool:
        """Whether the call has no time for another round over the sites."""
        return time.monotonic() + PAUSE_S >= self.deadline

    def refused_number(self, site: str | None, why: Unnumbered) -> None:
        """A site has refused the number of a put, and made it without one."""
        if site is not None and why.is_lasting:
            self.sites.stays_there(site, why)

    def should_look(self) -> bool:
        return time.monotonic() >= self._look_at

    def nearer(self) -> str | None:
        """A site to move to now."""
        now = time.monotonic()
        self._look_at = now + LOOK_S
        self.sites.watch()
        return None if self.site is None or now < self._stay_until else self.sites.nearer_than(self.site)

    def stays(self, site: str) -> None:
        """The session is at this site, and stays there for a while."""
        now = time.monotonic()
        self.site = site
        self._stay_until, self._look_at = now + self.sites.roaming.stay_s, now + LOOK_S

    def attached(self, began: float) -> None:
        stats, took = self.stats, time.monotonic() - began
        stats.attaches += 1
        stats.attach_s += took
        stats.attach_s_max = max(stats.attach_s_max, took)

    def failed(self, why: Exception) -> None:
        """The site did not answer, or does not serve."""
        if self.site is not None:
            self.sites.failed(self.site)
        if isinstance(why, (redis.TimeoutError, ClusterDownError, BusyLoadingError)):
            self.last = self.site


def attach_request(token: bytes, within_s: float) -> tuple[Any, ...]:
    return "PORTOLAN.ATTACH", token, "WITHIN", min(10_000, max(1, int(within_s * 1000)))


def later_request(token: bytes) -> tuple[Any, ...]:
    return "PORTOLAN.ATTACH", token, "LATER"


def limited(kwargs: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """The same options of a connection that has no longer than this for a request."""
    limits = ("socket_timeout", "socket_connect_timeout")
    return {**kwargs, **{one: min(kwargs.get(one) or limit_s, limit_s) for one in limits}}


def judged(error: Exception, reads: bool, refused_whole: bool) -> tuple[bool, Exception | None]:
    """Whether the site failed by this error, and what the application has to see; None: what was asked may be
    done again elsewhere."""
    if isinstance(error, (NoSite, SessionError, UnknownOutcome, *REFUSED)):
        return False, error
    if isinstance(error, (ClusterDownError, BusyLoadingError)):
        # The site does not serve now: nothing was done.
        repeats = reads or refused_whole
    elif isinstance(error, ResponseError):
        return False, named(error)
    elif isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError)):
        repeats = reads
    else:
        return False, error
    return True, None if repeats else lost(error)


class _OneConnection(ConnectionPool):
    """A pool with the session's one connection, which is at the session's site whenever one asks for it."""

    def __init__(self, sites: Sites, token: bytes | None) -> None:
        quiet = MaintNotificationsConfig(enabled=False)
        kind = carrying(sites.connection_class)
        super().__init__(connection_class=kind, maint_notifications_config=quiet, **sites.options)
        self.place = Place(sites, token)
        self._here: Any = None
        self._process = os.getpid()

    def get_connection(self, *_: Any, **__: Any) -> Any:
        if self._process != os.getpid():
            # Forked: the connection is the parent's, and the session branches.
            self._process = os.getpid()
            self.leave()
        if self._here is not None and is_quiet(self._here):
            if self.place.should_look():
                self._look()
            return self._here
        # Closed by the other side, or with an answer that was given up.
        self.leave()
        return self._open()

    def release(self, connection: Any) -> None:
        """It stays the session's."""

    def disconnect(self, inuse_connections: bool = True) -> None:
        self.leave()

    def leave(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            here.disconnect()

    def _look(self) -> None:
        place = self.place
        if (nearer := place.nearer()) is not None:
            try:
                self.move_to(nearer, place.sites.roaming.wait_s)
            except (RedisError, OSError) as error:
                log.debug("%s is nearer and does not take the session: %s", nearer, error)
                assert place.site is not None
                place.stays(place.site)

    def move_to(self, site: str, within_s: float) -> None:
        """Goes on at another site; if that is not possible, the session stays where it is."""
        ends = time.monotonic() + within_s
        error: Exception | None = None
        for node in self.place.sites.nodes[site]:
            try:
                there = self._attach(node, ends - time.monotonic())
            except (RedisError, OSError) as why:
                error = error or why
                continue
            self.leave()
            self._here = there
            self.place.stays(site)
            self.place.stats.moves += 1
            return
        assert error is not None
        raise error

    def _open(self) -> Any:
        lack: SessionError | None = None
        why: Exception | None = None
        place = self.place
        place.sites.watch()
        while True:
            for site, node in place.nodes_in_turn():
                if (left := place.left_s()) <= 0:
                    break
                try:
                    self._here = self._attach(node, left)
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
            time.sleep(PAUSE_S)

    def _attach(self, node: Address, within_s: float) -> Any:
        """A connection to a node that has all that the session has seen."""
        there = self.connection_class(host=node[0], port=node[1], **self.connection_kwargs)
        began = time.monotonic()
        try:
            there.connect()
            if (token := self.place.carrier.token) is not None:
                there.send_command(*attach_request(token, within_s), check_health=False)
                try:
                    # A site answers at the end of what it was given, not before.
                    there.read_response(timeout=within_s + (there.socket_timeout or 0.0))
                except ResponseError as error:
                    raise named(error) from None
                self.place.attached(began)
        except BaseException:
            there.disconnect()
            raise
        there.carry(self.place.carrier)
        return there


    def begin_at(self, node: Address, limit_s: float) -> Any:
        """A connection to a node that need not have what the session has seen: each request waits for that."""
        there = self.connection_class(
            host=node[0], port=node[1], **limited(self.connection_kwargs, limit_s)
        )
        try:
            there.connect()
            if (token := self.place.carrier.token) is not None:
                there.send_command(*later_request(token), check_health=False)
                there.read_response()
        except BaseException:
            there.disconnect()
            raise
        there.carry(self.place.carrier)
        return there


def is_quiet(connection: Any) -> bool:
    """Whether a connection is open and nothing has come on it that no request has asked for."""
    try:
        return connection.is_connected and not connection.can_read()
    except RedisError:
        return False


class Session(redis.Redis):
    """A `redis.Redis` that is one session with the causal keyspaces of a deployment, at whatever site it is.

    It reads what it has written and never less than it has read, also when its site fails or it moves to a
    nearer one. Its calls follow one another, also those of several threads. `token`: of the session to go on with.
    """

    connection_pool: _OneConnection

    def __init__(
        self, sites: Sites | Addresses, *, token: str | bytes | None = None, deadline_s: float = 5.0
    ) -> None:
        sites = sites if isinstance(sites, Sites) else Sites(sites)
        carried = token.encode() if isinstance(token, str) else token
        self._turn = threading.RLock()
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

    def move_to(self, site: str, within_s: float = 2.0) -> None:
        """Goes on at this site, and stays where it is if that raises."""
        with self._turn:
            self.connection_pool.move_to(site, within_s)

    def begin_anew(self) -> None:
        """Forgets what the session has seen: a new one begins."""
        with self._turn:
            self.connection_pool.leave()
            self.connection_pool.place.carrier.token = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        def work() -> Any:
            return self._execute_command(*args, **options)

        place = self.connection_pool.place
        if not (place.sites.go_elsewhere(place.site) and is_put(args, self.get_encoder().encode)):
            return self._repeat(work, is_read(args), refused_whole=True)
        with self._turn:
            try:
                return self._put(Put(place.numbers.next(), args), options)
            except Unnumbered as error:
                site, why = place.site, error
            answer = self._repeat(work, reads=False, refused_whole=True)
            place.refused_number(site, why)
            return answer

    def _put(self, put: Put, options: dict[str, Any]) -> Any:
        """Makes a put at the session's site, and asks for it at all sites if it was sent there in vain."""
        pool, place = self.connection_pool, self.connection_pool.place
        place.begins(self.deadline_s)
        while True:
            here = pool.get_connection()
            try:
                return self._send_command_parse_response(
                    here, put.name, *put.first_at(place.site), **options
                )
            except FAILURES as error:
                was_sent, shown = first_failed(error)
                if shown is None and not was_sent and time.monotonic() >= place.deadline:
                    shown = error
                if shown is not None:
                    raise shown from (None if shown is error else error)
                place.failed(error)
                pool.leave()
                if was_sent:
                    return self._put_again(put, options, error)
                place.stats.repeats += 1

    def _put_again(self, put: Put, options: dict[str, Any], why: Exception) -> Any:
        """Asks for a put that was sent in vain: at each node of its site once more, unless that is silent, and
        at the others in turn. The session goes on where it gets the answer, and has yet to attach there."""
        pool, place = self.connection_pool, self.connection_pool.place
        while True:
            for site, node in place.nodes_in_turn():
                if (left := place.rest_s()) <= 0:
                    break
                place.stats.repeats += 1
                try:
                    there = pool.begin_at(node, left)
                    try:
                        answer = self._send_command_parse_response(
                            there, put.name, *put.again(), **options
                        )
                    finally:
                        there.disconnect()
                except FAILURES as error:
                    why = error
                    if ends(error):
                        raise lost(why) from error
                    continue
                place.site = site
                return answer
            if place.is_over():
                raise lost(why) from why
            time.sleep(PAUSE_S)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> SessionPipeline:
        return SessionPipeline(self, transaction, shard_hint)

    def pubsub(self, **kwargs: Any) -> Any:
        raise NotImplementedError("subscriptions belong to no session: use a redis.Redis")

    def monitor(self) -> Any:
        raise NotImplementedError("MONITOR belongs to no session: use a redis.Redis")

    def _repeat(self, work: Callable[[], Any], reads: bool, refused_whole: bool) -> Any:
        """Does work, again elsewhere where that does no harm. `refused_whole`: an error of the site means
        that nothing of it was done."""
        with self._turn:
            pool = self.connection_pool
            pool.place.begins(self.deadline_s)
            while True:
                try:
                    return work()
                except FAILURES as error:
                    failed, shown = judged(error, reads, refused_whole)
                    if failed:
                        pool.place.failed(error)
                        pool.leave()
                    if shown is None and time.monotonic() >= pool.place.deadline:
                        shown = error
                    if shown is not None:
                        raise shown from (None if shown is error else error)
                    pool.place.stats.repeats += 1


class SessionPipeline(redis.client.Pipeline):
    """A pipeline or transaction of a session: sent to one site, as one packet."""

    def __init__(self, session: Session, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(session.connection_pool, session.response_callbacks, transaction, shard_hint)
        self._session = session

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, explicit = list(self.command_stack), self.explicit_transaction
        is_transaction = bool(self.transaction or explicit)

        def work() -> list[Any]:
            self.command_stack, self.explicit_transaction = list(stack), explicit
            return super(SessionPipeline, self).execute(raise_on_error)

        reads = all(is_read(args) for args, _ in stack)
        answers = self._session._repeat(work, reads, refused_whole=is_transaction)
        return [named(one) if isinstance(one, ResponseError) else one for one in answers]


def lost(why: Exception) -> UnknownOutcome:
    return UnknownOutcome(f"the answer is lost: {why}")


def is_read(args: Sequence[Any]) -> bool:
    """Whether a request changes nothing and means the same at another node."""
    name = args[0].decode() if isinstance(args[0], bytes) else str(args[0])
    if name not in READS and name.upper() not in READS:
        return False
    # A cursor is a node's.
    cursor = args[1:2] if name.upper() == "SCAN" else args[2:3] if name.upper() == "HSCAN" else ()
    return all(str(one) in ("0", "b'0'") for one in cursor)
