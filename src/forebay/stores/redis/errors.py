"""Translation of driver errors into store errors, and the error of a record that keeps changing."""

from __future__ import annotations

import ssl
from typing import Final

import redis

from forebay.errors import StoreError, StoreRefused, StoreUnavailable, StoreUnusable

# Reads and writes of a record that keeps changing, before `busy_error`.
TRIES: Final = 100

# Driver error -> error and text for the caller; the first match counts.
_MEANING: Final[tuple[tuple[type[redis.RedisError], type[StoreError], str], ...]] = (
    (redis.exceptions.AuthenticationError, StoreUnusable, "does not accept this user"),
    (
        redis.exceptions.NoPermissionError,
        StoreUnusable,
        "does not let this user do that: grant it the namespace",
    ),
    (redis.exceptions.OutOfMemoryError, StoreUnavailable, "has no memory left: raise maxmemory or prune"),
    (
        redis.exceptions.ReadOnlyError,
        StoreUnavailable,
        "is read-only now: a replica, or a failover is under way",
    ),
    (redis.exceptions.BusyLoadingError, StoreUnavailable, "is loading its data"),
    (redis.exceptions.MasterDownError, StoreUnavailable, "is a replica that has lost its master"),
    (redis.exceptions.ClusterDownError, StoreUnavailable, "is a cluster that is down"),
    (
        redis.exceptions.TryAgainError,
        StoreUnavailable,
        "is moving the keys to another server; retry in a moment",
    ),
    (redis.exceptions.TimeoutError, StoreUnavailable, "did not answer in time"),
    (redis.exceptions.ConnectionError, StoreUnavailable, "cannot be reached"),
)
# Errors without a class of their own, by their first word.
_ERROR_PREFIXES: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    ("MISCONF", StoreUnavailable, "cannot write its own files and refuses to change anything"),
    ("BUSY", StoreUnavailable, "is busy with another script"),
    ("NOREPLICAS", StoreUnavailable, "has too few replicas to accept anything"),
    ("WRONGTYPE", StoreUnusable, "has keys of another program in this namespace: choose another one"),
)


def translate_error(location: str, exc: Exception) -> StoreError:
    """Translate an error of the driver."""
    if isinstance(exc.__context__, ssl.SSLCertVerificationError):
        return StoreUnusable(
            f"{location} has a certificate that is not trusted: name the one that has signed it in "
            f"ssl_ca_certs "
            f"({exc})"
        )
    for kind, error, text in _MEANING:
        if isinstance(exc, kind):
            return error(f"{location} {text} ({exc})")
    prefix = str(exc).partition(" ")[0]
    for known, error, text in _ERROR_PREFIXES:
        if prefix == known:
            return error(f"{location} {text} ({exc})")
    return StoreError(f"{location}: {exc}")


def unwritable_error(exc: UnicodeEncodeError) -> StoreRefused:
    return StoreRefused(f"this text cannot be written as UTF-8: {exc.object!r:.60}")


def is_full(error: StoreError) -> bool:
    """Return whether the server refused a call because it has no memory left."""
    return isinstance(error.__cause__, redis.exceptions.OutOfMemoryError)


def busy_error(location: str, subject: str) -> StoreUnavailable:
    return StoreUnavailable(f"{location} is busy: {subject} keeps changing; retry in a moment")
