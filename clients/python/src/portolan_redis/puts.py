"""Puts that are sent to another site when one does not answer. Each has a number, by which it is made once."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.exceptions import BusyLoadingError, ClusterDownError, RedisError, ResponseError

from .errors import REFUSED, NoSite, NotOnce, SessionError, UnknownOutcome, named

ONCE = "PORTOLAN.ONCE"
#: What the keys of a put may have together: more is not sent to several sites.
KEYS_BYTES_MAX = 4096


class Numbers:
    """The numbers of a session's puts. A forked process has numbers of its own."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._client = self._last = 0

    def next(self) -> str:
        if self._process != os.getpid():
            self._process, self._last = os.getpid(), 0
            self._client = 1 + secrets.randbelow(2**63 - 1)
        self._last += 1
        return f"{self._client}-{self._last}"


class Put:
    """A put, and its attempts so far."""

    def __init__(self, number: str, args: Sequence[Any]) -> None:
        self._number, self.args = number, args
        #: The site that is tried first.
        self.first: str | None = None

    @property
    def name(self) -> str:
        return str(self.args[0])

    def first_at(self, site: str | None) -> tuple[Any, ...]:
        """The first attempt. If it was certainly not made, another site can be the first one."""
        self.first = site
        return ONCE, self._number, site, "OPTIONAL", *self.args

    def again(self) -> tuple[Any, ...]:
        """An attempt after one that may have been made."""
        return ONCE, self._number, self.first, "AGAIN", *self.args


class Unnumbered(Exception):
    """Nothing was done, and the put is to be made like any other. `is_lasting`: so is the next one."""

    def __init__(self, why: ResponseError) -> None:
        super().__init__(str(why))
        self.is_lasting = why.status_code == "ERR" or isinstance(named(why), NotOnce)


def is_put(args: Sequence[Any], encode: Callable[[Any], bytes]) -> bool:
    """Whether a request overwrites all of its keys, without condition, expiry or anything else."""
    name = str(args[0]).upper()
    if not (name == "SET" and len(args) == 3 or name == "MSET" and len(args) >= 3 and len(args) % 2):
        return False
    try:
        return 0 < sum(len(encode(key)) for key in args[1::2]) <= KEYS_BYTES_MAX
    except RedisError:
        # It is no key: the request itself fails by that.
        return False


def first_failed(error: Exception) -> tuple[bool, Exception | None]:
    """Whether a first attempt may have been made, and what the application has to see; None: it goes on.

    Raises `Unnumbered` where the site refuses the number.
    """
    if isinstance(error, (NoSite, SessionError, *REFUSED)):
        return False, error
    if isinstance(error, (ClusterDownError, BusyLoadingError)):
        # The site does not serve now: nothing was done.
        return False, None
    if isinstance(error, ResponseError):
        named_as = named(error)
        if isinstance(named_as, UnknownOutcome):
            return True, None
        if isinstance(named_as, SessionError):
            return False, named_as
        raise Unnumbered(error) from error
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError)):
        return True, None
    return False, error


def ends(error: Exception) -> bool:
    """Whether a later attempt need not be made elsewhere: the put was one like any other, at its first site."""
    return isinstance(error, ResponseError) and isinstance(named(error), NotOnce)
