"""How a worker runs the jobs of a task. Stays with the code: nothing of it is stored with a job."""

from __future__ import annotations

import msgspec

from forebay.app.times import Length, length_ms
from forebay.errors import ConfigError


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """What `app.task` was told about attempts: which errors end a job at once, when a running one is told
    that it takes long (in seconds), and whether one that ran too long is tried again."""

    no_retry_for: tuple[type[BaseException], ...] = ()
    soft_timeout: float | None = None
    retry_on_timeout: bool = True


def conduct(
    no_retry_for: tuple[type[BaseException], ...], soft_timeout: Length | None, retry_on_timeout: bool
) -> Conduct:
    """These settings, checked; raises InvalidJob or ConfigError naming what is wrong."""
    if not isinstance(retry_on_timeout, bool):
        raise ConfigError(f"retry_on_timeout must be True or False, not {retry_on_timeout!r:.60}")
    return Conduct(
        no_retry_for=_errors(no_retry_for),
        soft_timeout=None if soft_timeout is None else _seconds(soft_timeout),
        retry_on_timeout=retry_on_timeout,
    )


def check_order(soft_timeout: float | None, timeout_ms: int | None) -> None:
    """Raise ConfigError for a soft limit that the hard one would never let come."""
    if soft_timeout is not None and timeout_ms is not None and soft_timeout * 1_000 >= timeout_ms:
        raise ConfigError(
            f"soft_timeout ({soft_timeout:g} s) must be shorter than timeout ({timeout_ms / 1_000:g} s): "
            "shorten it, or give the task a longer timeout"
        )


def _errors(no_retry_for: object) -> tuple[type[BaseException], ...]:
    """As `isinstance` wants it: that is asked when a job has failed, too late for a wrong setting."""
    listed = tuple(no_retry_for) if isinstance(no_retry_for, (tuple, list, set)) else (no_retry_for,)
    for kind in listed:
        if not _is_error(kind):
            raise ConfigError(f"no_retry_for must list classes of exceptions, not {kind!r:.60}")
    return listed


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _seconds(soft_timeout: Length) -> float:
    ms = length_ms("soft_timeout", soft_timeout)
    if ms < 1:
        raise ConfigError(f"soft_timeout must be longer than nothing, not {soft_timeout!r:.60}")
    return ms / 1_000
