"""What a session with causal keyspaces raises, and what the application can do about it."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    RedisError,
    ResponseError,
)

REFUSED = (AuthenticationError, AuthorizationError)


class SessionError(ResponseError):
    """A site lacks what the session has seen or written. Nothing was done."""


class Behind(SessionError):
    """The sites that answer have the order up to a lower position than the session has seen.

    Call again (a call waits up to `deadline_s`), `move_to` a site that has it, or `begin_anew`.
    """


class Unordered(SessionError):
    """What the session wrote at the site that it came from has no place in the order yet.

    Call again, which goes back to that site when it answers; or `begin_anew`, without that write.
    """


class Lost(SessionError):
    """The site that the session wrote at is gone for good, with that write: `begin_anew`."""


class BadToken(SessionError):
    """The token is of another deployment, another secret or a newer version: `begin_anew`."""


class NoSite(ConnectionError):
    """No site answered within the deadline. Nothing was done; the session is kept: call again."""


class UnknownOutcome(RedisError):
    """A write was sent and its answer is lost: it may have been made, or not, or may be made yet.

    It is not repeated, as no site has a record of what another was asked (of a put with `Roaming.elsewhere`:
    no site could answer for it within the deadline, or its keyspace has no such puts). The session goes on without it. A
    site that has it and failed brings it when it is back, over what was written meanwhile.
    Read what it was to change, and write again if a second time does no harm.
    """


class NotOnce(ResponseError):
    """Puts of this keyspace are not sent to several sites. Nothing was done. A session never raises it."""


_BY_CODE: dict[str, type[RedisError]] = {
    "BEHIND": Behind,
    "UNORDERED": Unordered,
    "LOST": Lost,
    "BADTOKEN": BadToken,
    "NOTONCE": NotOnce,
    "UNKNOWN": UnknownOutcome,
}
_IN_PIPELINE = " of pipeline caused error: "


def named(error: ResponseError) -> RedisError:
    """A server's error by its code, if it is of a session; otherwise as it is."""
    text = str(error)
    kind = _BY_CODE.get(text.rpartition(_IN_PIPELINE)[2].partition(" ")[0])
    return error if kind is None else kind(text)
