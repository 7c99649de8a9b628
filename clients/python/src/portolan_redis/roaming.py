"""The sites of a deployment, by how long they take to answer.

A client's site is left for a nearer one only if that answers clearly sooner, by the medians of the last
PINGs, and not soon after the last move: two sites at like distances do not make clients swing.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import RedisError
from redis.retry import Retry

log = logging.getLogger("portolan_redis")

Address = tuple[str, int]
Addresses = Mapping[str, str | Iterable[str]] | Iterable[str]

#: Names of commands that change nothing, so that they may be sent again, to another site too.
READS = frozenset(
    "GET MGET EXISTS STRLEN GETRANGE SUBSTR TYPE TTL PTTL EXPIRETIME PEXPIRETIME KEYS SCAN DBSIZE"
    " RANDOMKEY HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN HSCAN HRANDFIELD"
    " PING ECHO TIME PORTOLAN.TOKEN PORTOLAN.ATTACH".split()
)
#: PINGs of a site that its distance is the median of.
PINGS_KEPT = 5
#: So many are needed before a client goes by them.
PINGS_NEEDED = 3


@dataclass(frozen=True)
class Roaming:
    """When a session leaves a site that answers."""

    #: False: only when the site fails.
    nearer: bool = True
    #: Seconds between PINGs to each site.
    ping_every_s: float = 5.0
    #: The other site answers in at most this share of the time of the own one …
    share: float = 0.7
    #: … and sooner by this at least.
    gain_ms: float = 1.0
    #: A session stays at a site this long at least, while the site answers.
    stay_s: float = 30.0
    #: What a session may wait for the nearer site to have all that it has seen; otherwise it stays.
    wait_s: float = 0.25
    #: Whether a `set` or `mset` that was sent in vain goes on at other sites, and is made once. Off by default:
    #: a site that leaves and comes back under its name meanwhile may show it over a later write for a moment.
    #: Each such put takes some tens of bytes at every site for that, of the last 65,536.
    elsewhere: bool = False

    def __post_init__(self) -> None:
        if not (self.ping_every_s >= 0.01 and self.stay_s >= 1.0 and 0.001 <= self.wait_s <= 10.0):
            raise ValueError("ping_every_s is 0.01 at least, stay_s 1, wait_s 0.001 to 10")
        if not (0.0 < self.share < 1.0 and self.gain_ms >= 0.0):
            raise ValueError("share lies between 0 and 1, gain_ms is not negative")


class Sites:
    """The sites that sessions of this process may use. Sessions share one of these.

    `addresses`: `["pier:7379", …]`, or by site's name, with one address or several nodes' each; with
    `Roaming.elsewhere` by their names in the deployment (`portolan site list`). Everything
    else is as for `redis.Redis`: `username`, `password`, `ssl`, `ssl_ca_certs`, `decode_responses`, ….
    """

    def __init__(self, addresses: Addresses, *, roaming: Roaming = Roaming(), **options: Any) -> None:
        named = addresses if isinstance(addresses, Mapping) else {one: one for one in addresses}
        self.nodes: dict[str, list[Address]] = {
            name: [_address(one) for one in ([of] if isinstance(of, str) else of)]
            for name, of in named.items()
        }
        if not self.nodes or not all(self.nodes.values()):
            raise ValueError("at least one site, each with an address")
        if roaming.elsewhere and not isinstance(addresses, Mapping):
            raise ValueError("elsewhere needs the names of the sites")
        self.roaming = roaming
        self.has_tls = bool(options.pop("ssl", False))
        self.connection_class = SSLConnection if self.has_tls else Connection
        # The session repeats by itself what may be repeated.
        self.options: dict[str, Any] = {
            "socket_timeout": 2.0,
            "socket_connect_timeout": 1.0,
            **options,
            "retry": Retry(NoBackoff(), 0),
        }
        #: Sites that refuse numbers: they are of an earlier version, or have other names.
        self._stay: set[str] = set()
        self._pings: dict[str, deque[float]] = {name: deque(maxlen=PINGS_KEPT) for name in self.nodes}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def distance_ms(self, site: str) -> float | None:
        """The median of a site's last PINGs; None: too few were answered."""
        pings = list(self._pings[site])
        return median(pings) if len(pings) >= PINGS_NEEDED else None

    def nearer_than(self, site: str) -> str | None:
        """A site that a session should leave this one for."""
        here = self.distance_ms(site)
        if here is None:
            return None
        found = [(ms, name) for name in self.nodes if (ms := self.distance_ms(name)) is not None]
        ms, name = min(found)
        rule = self.roaming
        return name if ms <= here * rule.share and here - ms >= rule.gain_ms else None

    def in_turn(self, here: str | None, last: str | None) -> list[tuple[str, Address]]:
        """All nodes in the order to try: of the site where the session is, then of the others, the nearest
        first; those of one that did not answer in time, or does not serve, come last."""

        def rank(name: str) -> tuple[bool, bool, float]:
            ms = self.distance_ms(name)
            return name == last, name != here, float("inf") if ms is None else ms

        return [(name, node) for name in sorted(self.nodes, key=rank) for node in self.nodes[name]]

    def go_elsewhere(self, site: str | None) -> bool:
        """Whether a put that is tried first at this site may be sent to another one."""
        return self.roaming.elsewhere and len(self.nodes) > 1 and site not in self._stay

    def stays_there(self, site: str, why: Exception) -> None:
        """It may not."""
        if site not in self._stay:
            log.warning("puts at %s are not sent to other sites: %s", site, why)
            self._stay.add(site)

    def failed(self, site: str) -> None:
        """A site does not answer: what its PINGs took counts no more."""
        self._pings[site].clear()

    def answered(self, site: str, ms: float) -> None:
        """A site has answered a PING."""
        self._pings[site].append(ms)

    def watch(self) -> None:
        """Measures from now on, if there is something to choose."""
        if not self.roaming.nearer or len(self.nodes) < 2:
            return
        with self._lock:
            # A forked process has no thread.
            if self._closed.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            work = (weakref.ref(self), self._closed, self.roaming.ping_every_s)
            self._thread = threading.Thread(
                target=_ping_each, args=work, name="portolan-redis-sites", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Measures no more. Sessions go on, and leave sites only when they fail."""
        self._closed.set()


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def _ping_each(sites: weakref.ref[Sites], closed: threading.Event, every_s: float) -> None:
    links: dict[str, Any] = {}
    while not closed.is_set():
        if (here := sites()) is None:
            break
        for name, nodes in here.nodes.items():
            _ping(here, name, nodes, links)
        del here
        closed.wait(every_s)
    for link in links.values():
        link.disconnect()


def _ping(sites: Sites, name: str, nodes: Sequence[Address], links: dict[str, Any]) -> None:
    for host, port in nodes:
        link = links.get(name)
        try:
            if link is None:
                links[name] = link = sites.connection_class(host=host, port=port, **sites.options)
                link.connect()
            began = time.perf_counter()
            link.send_command("PING", check_health=False)
            link.read_response()
            sites.answered(name, (time.perf_counter() - began) * 1000.0)
            return
        except (RedisError, OSError) as error:
            log.debug("%s does not answer a PING: %s", name, error)
            links.pop(name, None)
            if link is not None:
                link.disconnect()
    sites.failed(name)
