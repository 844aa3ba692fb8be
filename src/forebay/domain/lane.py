"""Gates: why a pending job waits beside its queue's order, and who may fetch it there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Before the others in the order of gates, so that statements can step over all of these at once.
_LIMIT: Final = "limit:"
# Between a scope and a share. Neither contains control characters, so the name of a lane is unambiguous.
_SEPARATOR: Final = "\t"


def task_lane(task: str) -> str:
    """Behind this wait jobs whose task some worker of their queue did not know."""
    return f"task:{task}"


def payload_lane(version: int) -> str:
    """Behind this wait jobs whose payload is for programs that read at least this version."""
    return f"payload:{version}"


def capability_lane(capability: str) -> str:
    """Behind this wait jobs whose payload is for programs that were given this: a key, or a blob store."""
    return f"needs:{capability}"


def limit_lane(scope: str) -> str:
    """Behind this wait jobs at the limit of their task or key; nobody passes it, claims bring them back."""
    return f"{_LIMIT}{scope}"


def limit_fairness_lane(scope: str, key: str) -> str:
    """The gate of one share's jobs at the limit of a scope; claims bring them back by the turns of shares."""
    return f"{_LIMIT}{scope}{_SEPARATOR}{key}"


def is_limit_lane(lane: str) -> bool:
    return lane.startswith(_LIMIT)


def limit_scope_of(lane: str) -> str:
    """The scope of a gate that `limit_lane` or `limit_fairness_lane` has named."""
    return lane.removeprefix(_LIMIT).partition(_SEPARATOR)[0]


def lanes_for_program(tasks: Iterable[str], version: int) -> frozenset[str]:
    """The gates that a program may pass: those of its tasks, and of all payloads it reads."""
    return frozenset([*map(task_lane, tasks), *map(payload_lane, range(1, version + 1))])


def park_detail(lane: str, reason: str | None) -> str:
    """What the event says about a job that was put behind a gate."""
    return f"{lane}: {reason}" if reason else lane
