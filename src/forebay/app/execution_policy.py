"""How a worker runs the jobs of a task. Stays with the code: nothing of it is stored with a job."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from forebay.domain.durations import Duration, duration_ms, duration_within
from forebay.errors import ConfigError

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Less than an interpreter takes would fail every job; more is a slip of the finger.
MIN_MEMORY: Final = 32 * 2**20
MAX_MEMORY: Final = 2**40
GRACE_SECONDS: Final = 5.0
MAX_GRACE_MS: Final = 3_600_000


class ExecutionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What `app.task` was told about attempts: which errors end a job at once, when a running one is told
    that it takes long (in seconds), whether one that ran too long is tried again, and whether each runs in a
    process of its own, with how many bytes of memory, and how many seconds after it was asked to stop it is
    killed there."""

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
    """These settings, checked; raises InvalidJob or ConfigError naming what is wrong."""
    _check_flag("retry_on_timeout", retry_on_timeout)
    _check_flag("isolated", isolated)
    if memory_limit is not None and not isolated:
        raise ConfigError(
            "memory_limit is for a task in a process of its own: give isolated=True too, or leave memory_limit out"
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
    """Raise ConfigError for a soft limit that the hard one would never let come."""
    if soft_timeout is not None and timeout_ms is not None and soft_timeout * 1_000 >= timeout_ms:
        raise ConfigError(
            f"soft_timeout ({soft_timeout:g} s) must be shorter than timeout ({timeout_ms / 1_000:g} s): "
            "shorten it, or give the task a longer timeout"
        )


def _check_error_types(no_retry_for: object) -> tuple[type[BaseException], ...]:
    """As `isinstance` wants it: that is asked when a job has failed, too late for a wrong setting."""
    listed = tuple(no_retry_for) if isinstance(no_retry_for, (tuple, list, set)) else (no_retry_for,)
    for kind in listed:
        if not _is_error(kind):
            raise ConfigError(f"no_retry_for must list classes of exceptions, not {kind!r:.60}")
    return listed


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r:.60}")


def _memory_bytes(memory: object) -> int:
    """A number of bytes, or a text as "512MB"; a unit is 1,024 of the one below it."""
    count = _parse_memory(memory) if isinstance(memory, str) else memory
    if isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(
            f'memory_limit must be a number of bytes or a text like "512MB" or "2GB", not {memory!r:.60}'
        )
    if not MIN_MEMORY <= count <= MAX_MEMORY:
        raise ConfigError(f"memory_limit must be from 32MB to 1,024GB, not {memory!r:.60}")
    return count


def _parse_memory(text: str) -> int | None:
    found = re.fullmatch(
        r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT])?B?\s*", text, re.IGNORECASE | re.ASCII
    )
    if found is None:
        return None
    number, unit = found.groups()
    return round(float(number) * _UNITS[(unit or "").upper()])


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _soft_timeout_seconds(soft_timeout: Duration) -> float:
    ms = duration_ms("soft_timeout", soft_timeout)
    if ms < 1:
        raise ConfigError(f"soft_timeout must be longer than nothing, not {soft_timeout!r:.60}")
    return ms / 1_000
