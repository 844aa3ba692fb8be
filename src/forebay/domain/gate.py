"""Gates: why a pending job waits beside its queue's order, and who may fetch it there."""

from __future__ import annotations

from collections.abc import Iterable


def task_gate(task: str) -> str:
    """Behind this wait jobs whose task some worker of their queue did not know."""
    return f"task:{task}"


def payload_gate(version: int) -> str:
    """Behind this wait jobs whose payload is for programs that read at least this version."""
    return f"payload:{version}"


def gates_of(tasks: Iterable[str], version: int) -> frozenset[str]:
    """The gates that a program may pass: those of its tasks, and of all payloads it reads."""
    return frozenset([*map(task_gate, tasks), *map(payload_gate, range(1, version + 1))])


def why_held(gate: str, reason: str | None) -> str:
    """What the event says about a job that was put behind a gate."""
    return f"{gate}: {reason}" if reason else gate
