"""Gates: why a pending job waits beside its queue's order, and who may fetch it there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Before the others in the order of gates, so that statements can step over all of these at once.
_LIMIT: Final = "limit:"
# Between a scope and a share. Neither contains control characters, so the name of a lane is unambiguous.
_LANE: Final = "\t"


def task_gate(task: str) -> str:
    """Behind this wait jobs whose task some worker of their queue did not know."""
    return f"task:{task}"


def payload_gate(version: int) -> str:
    """Behind this wait jobs whose payload is for programs that read at least this version."""
    return f"payload:{version}"


def needs_gate(needs: str) -> str:
    """Behind this wait jobs whose payload is for programs that were given this: a key, or a blob store."""
    return f"needs:{needs}"


def limit_gate(scope: str) -> str:
    """Behind this wait jobs at the limit of their task or key; nobody passes it, claims bring them back."""
    return f"{_LIMIT}{scope}"


def lane_gate(scope: str, share: str) -> str:
    """The gate of one share's jobs at the limit of a scope; claims bring them back by the turns of shares."""
    return f"{_LIMIT}{scope}{_LANE}{share}"


def is_limit_gate(gate: str) -> bool:
    return gate.startswith(_LIMIT)


def scope_behind(gate: str) -> str:
    """The scope of a gate that `limit_gate` or `lane_gate` has named."""
    return gate.removeprefix(_LIMIT).partition(_LANE)[0]


def gates_of(tasks: Iterable[str], version: int) -> frozenset[str]:
    """The gates that a program may pass: those of its tasks, and of all payloads it reads."""
    return frozenset([*map(task_gate, tasks), *map(payload_gate, range(1, version + 1))])


def why_held(gate: str, reason: str | None) -> str:
    """What the event says about a job that was put behind a gate."""
    return f"{gate}: {reason}" if reason else gate
