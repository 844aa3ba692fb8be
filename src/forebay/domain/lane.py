"""Lanes: side orders of a queue, and the claims that may read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Sorts before the other lanes, so that statements can skip all of these at once.
_LIMIT: Final = "limit:"
# Between a scope and a fairness key. Neither contains control characters, so lane names are unambiguous.
_SEPARATOR: Final = "\t"


def task_lane(task: str) -> str:
    """Return the lane of jobs whose task a worker of their queue did not know."""
    return f"task:{task}"


def payload_lane(version: int) -> str:
    """Return the lane of jobs whose payload needs a program that reads at least this version."""
    return f"payload:{version}"


def capability_lane(capability: str) -> str:
    """Return the lane of jobs whose payload needs a program with this capability: a key, or a blob store."""
    return f"requires:{capability}"


def limit_lane(scope: str) -> str:
    """Return the lane of jobs at the limit of their task or key. No claim accepts it; claims unpark its
    jobs."""
    return f"{_LIMIT}{scope}"


def limit_fairness_lane(scope: str, key: str) -> str:
    """Return the lane of one fairness key's jobs at the limit of a scope; claims unpark its jobs by
    virtual time."""
    return f"{_LIMIT}{scope}{_SEPARATOR}{key}"


def is_limit_lane(lane: str) -> bool:
    return lane.startswith(_LIMIT)


def limit_scope_of(lane: str) -> str:
    """Return the scope of a lane of `limit_lane` or `limit_fairness_lane`."""
    return lane.removeprefix(_LIMIT).partition(_SEPARATOR)[0]


def lanes_for_program(tasks: Iterable[str], version: int) -> frozenset[str]:
    """Return the lanes that a program accepts: those of its tasks, and of all payload versions that it
    reads."""
    return frozenset([*map(task_lane, tasks), *map(payload_lane, range(1, version + 1))])


def park_detail(lane: str, reason: str | None) -> str:
    """Return the detail of the event of a parked job."""
    return f"{lane}: {reason}" if reason else lane
