"""Execution policy of a task: rules for its attempts. It stays with the code and is not stored with a job."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from forebay.domain.durations_and_instants import Duration, duration_ms, duration_within
from forebay.errors import ConfigError

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Less than an interpreter needs would fail every job; more is a typing error.
MIN_MEMORY: Final = 32 * 2**20
MAX_MEMORY: Final = 2**40
GRACE_SECONDS: Final = 5.0
MAX_GRACE_MS: Final = 3_600_000


class ExecutionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for the attempts of a task.

    `no_retry_for` lists the errors that end a job at once. `soft_timeout` is when a running attempt is
    warned, in seconds; `retry_on_timeout` is whether a timeout is tried again. An `isolated` task runs each
    job in a process of its own, with `memory_limit` bytes. That process is killed `grace` seconds after it
    was asked to stop.
    """

    no_retry_for: tuple[type[BaseException], ...] = ()
    soft_timeout: float | None = None
    retry_on_timeout: bool = True
    isolated: bool = False
    memory_limit: int | None = None
    grace: float = GRACE_SECONDS


def make_execution_policy(
    no_retry_for: tuple[type[BaseException], ...] = (),
    soft_timeout: Duration | None = None,
    retry_on_timeout: bool = True,
    isolated: bool = False,
    memory_limit: int | str | None = None,
    grace: Duration | None = None,
) -> ExecutionPolicy:
    """Return the checked policy; raise InvalidJob or ConfigError naming what is wrong."""
    _check_flag("retry_on_timeout", retry_on_timeout)
    _check_flag("isolated", isolated)
    if memory_limit is not None and not isolated:
        raise ConfigError(
            "memory_limit is for a task in a process of its own: "
            "give isolated=True too, or leave memory_limit out"
        )
    if grace is not None and not isolated:
        raise ConfigError(
            "grace is how long a process of its own may take to stop: give isolated=True too, or leave grace "
            "out; threads and coroutines cannot be killed"
        )
    return ExecutionPolicy(
        no_retry_for=_check_error_types(no_retry_for),
        soft_timeout=None if soft_timeout is None else _soft_timeout_seconds(soft_timeout),
        retry_on_timeout=retry_on_timeout,
        isolated=isolated,
        memory_limit=None if memory_limit is None else _memory_bytes(memory_limit),
        grace=GRACE_SECONDS if grace is None else duration_within("grace", grace, 0, MAX_GRACE_MS) / 1_000,
    )


def check_timeout_order(soft_timeout: float | None, timeout_ms: int | None) -> None:
    """Raise ConfigError for a soft limit that cannot be reached before the hard one."""
    if soft_timeout is not None and timeout_ms is not None and soft_timeout * 1_000 >= timeout_ms:
        raise ConfigError(
            f"soft_timeout ({soft_timeout:g} s) must be shorter than timeout ({timeout_ms / 1_000:g} s): "
            "shorten it, or give the task a longer timeout"
        )


def _check_error_types(no_retry_for: object) -> tuple[type[BaseException], ...]:
    """Return the error classes as a tuple. Checked here: `isinstance` would refuse them after a failure
    only."""
    error_types = tuple(no_retry_for) if isinstance(no_retry_for, (tuple, list, set)) else (no_retry_for,)
    for error_type in error_types:
        if not _is_error(error_type):
            raise ConfigError(f"no_retry_for must list classes of exceptions, not {error_type!r:.60}")
    return error_types


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r:.60}")


def _memory_bytes(memory: object) -> int:
    """Return a number of bytes, also of a text such as "512MB"; a unit is 1,024 of the one below it."""
    count = _parse_memory(memory) if isinstance(memory, str) else memory
    if isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(
            f'memory_limit must be a number of bytes or a text like "512MB" or "2GB", not {memory!r:.60}'
        )
    if not MIN_MEMORY <= count <= MAX_MEMORY:
        raise ConfigError(f"memory_limit must be from 32MB to 1,024GB, not {memory!r:.60}")
    return count


def _parse_memory(text: str) -> int | None:
    match = re.fullmatch(
        r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT])?B?\s*", text, re.IGNORECASE | re.ASCII
    )
    if match is None:
        return None
    number, unit = match.groups()
    return round(float(number) * _UNITS[(unit or "").upper()])


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _soft_timeout_seconds(soft_timeout: Duration) -> float:
    ms = duration_ms("soft_timeout", soft_timeout)
    if ms < 1:
        raise ConfigError(f"soft_timeout must be longer than zero, not {soft_timeout!r:.60}")
    return ms / 1_000
