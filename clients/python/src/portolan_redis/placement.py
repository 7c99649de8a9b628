"""Where sketches go, and how often."""

from __future__ import annotations

import http.client
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .sketch import Sketch

log = logging.getLogger("portolan_redis")


def _own_name() -> str:
    return f"{socket.gethostname()[:200]}-{os.urandom(4).hex()}"


#: Answers of a server in a window from which on it gets no PING.
ENOUGH_ANSWERS = 4


@dataclass(frozen=True)
class Placement:
    """What a client reports to `portolan place`."""

    #: Where it listens (`--listen`).
    url: str = "http://127.0.0.1:7390"
    #: As its `--token`.
    token: str | None = None
    #: Of this client alone, the same as long as it lives.
    name: str = field(default_factory=_own_name)
    #: Seconds; as its `--window`.
    window_s: float = 10.0
    #: Seconds that sending may take.
    deadline_s: float = 2.0
    #: Servers a second that get a PING, in turn, until each has answered four times in a window.
    pings_per_s: float = 20.0
    #: Whether a request counts, by its words (`("GET", "car:1")`): false for those that may wait.
    counts: Callable[[Sequence[Any]], bool] | None = None
    #: Whether latencies are sent as distributions too: for `portolan place --objective p95`.
    quantiles: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= 255:
            raise ValueError("the name of a client has 1 to 255 bytes")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("the URL of a placement begins with http:// or https://")
        if not (0.1 <= self.window_s <= 3600 and self.deadline_s > 0 and self.pings_per_s >= 0):
            raise ValueError("window_s is 0.1 to 3600, deadline_s above 0, pings_per_s not negative")


@dataclass
class Stats:
    """What became of a client's sketches."""

    #: Sketches that `portolan place` has taken.
    sent: int = 0
    #: Sketches that were dropped: it did not answer in time, or refused them.
    dropped: int = 0
    #: PINGs to servers that were seldom used.
    pings: int = 0
    #: PINGs that failed.
    pings_failed: int = 0
    #: Why the last sketch was dropped.
    last_error: str | None = None


class Outbox:
    """Takes a sketch each window and sends it. Errors are counted and stay here."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.stats = Stats()
        self.lock = threading.Lock()
        self.sketch = Sketch(placement.name, placement.quantiles)
        self._began = time.monotonic()

    def flush(self) -> None:
        """Sends what was counted since the last time."""
        with self.lock:
            now = time.monotonic()
            duration_ms = min(max(int((now - self._began) * 1000), 1), 3_600_000)
            self._began = now
            body = self.sketch.take(duration_ms)
        try:
            self._post(body)
            self.stats.sent += 1
        except Exception as error:
            self.stats.dropped += 1
            self.stats.last_error = f"{type(error).__name__}: {error}"
            log.debug("a sketch was dropped: %s", self.stats.last_error)

    def begin_anew(self) -> None:
        """In a forked process: another client, with nothing counted, and no thread that holds the lock."""
        self.lock = threading.Lock()
        self.stats = Stats()
        self._began = time.monotonic()
        # Another thread may have been inside: what is half done there is not packed.
        self.sketch.clear()
        self.sketch.client = f"{self.placement.name[:200]}-{os.urandom(4).hex()}"

    def _post(self, body: bytearray) -> None:
        url = urlsplit(self.placement.url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=self.placement.deadline_s)
        try:
            headers = {"Content-Type": "application/octet-stream"}
            if self.placement.token is not None:
                headers["Authorization"] = f"Bearer {self.placement.token}"
            connection.request("POST", url.path.rstrip("/") + "/v1/sketches", body, headers)
            answer = connection.getresponse()
            if answer.status != 204:
                why = answer.read(200).decode(errors="replace").strip()
                raise ValueError(f"{answer.status} {why}")
        finally:
            connection.close()

    def next_unused(self, names: list[str], after: int) -> int | None:
        """The next of these servers, in turn, that has answered too seldom in this window."""
        with self.lock:
            sketch = self.sketch
            places = {name: at for at, name in enumerate(sketch.names)}
            for step in range(1, len(names) + 1):
                at = (after + step) % len(names)
                place = places.get(names[at])
                if place is None or sketch.answers(place) < ENOUGH_ANSWERS:
                    return at
        return None
