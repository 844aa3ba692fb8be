"""What the rows of the crash matrix are made of.

A row sets its scene, and answers with what the process does that will be killed. It is done again afterwards
by another process, as a caller does that has had no answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from evidence.matrix_checks import QUEUES, Stage
from evidence.matrix_places import Act
from forebay.domain.job import Job, NewJob, WorkerId
from forebay.domain.outcome import AttemptError
from forebay.domain.retry_policy import RetryPolicy
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store

ALL: Final = ("memory", "sqlite", "postgresql", "redis")
JOINING: Final = ("sqlite", "postgresql")
# Who is killed.
DYING: Final = WorkerId("the dying worker")
MINUTE: Final = 60_000
DEFAULT, MAIL = QUEUES
BOOM: Final = AttemptError(type="Boom", message="it broke")
# Methods of the store contract that have no row, and why.
WITHOUT_ROW: Final = {
    **dict.fromkeys(("due_schedules", "last_metrics", "metrics", "snapshot_queues"), "only looks"),
    "close": "writes nothing",
    "migrate": "is played by itself, on a store that has no tables yet",
}
Scene = Callable[[Stage], Act]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to use one method. One that is `repeatable` makes no second job when it is done again; of one
    that `continues` a part may be left to the next promoter. `halfway` is the same scene for a call that
    does the first of two things that may happen one after the other."""

    name: str
    method: str
    scene: Scene
    engines: tuple[str, ...] = ALL
    repeatable: bool = True
    continues: bool = False
    halfway: Scene | None = None


class Rows(list[Row]):
    """Rows in the order in which they are written down."""

    def add(self, name: str, method: str, **more: Any) -> Callable[[Scene], Scene]:
        def add(scene: Scene) -> Scene:
            self.append(Row(name=name, method=method, scene=scene, **more))
            return scene

        return add


def check_rows(rows: Iterable[Row]) -> None:
    """Raise LookupError if a method of the store contract has no row."""
    missing = writing() - {row.method for row in rows} - set(WITHOUT_ROW)
    if missing:
        raise LookupError(f"the crash matrix has no row for {', '.join(sorted(missing))}")


def writing() -> set[str]:
    """The methods of the store contract by which something may be written."""
    methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if name[0] != "_"}
    of_engine = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction)}
    return methods | {name for name in of_engine if "_tx" in name}


def job(**changes: Any) -> NewJob:
    policy = RetryPolicy(max_retries=3, base_ms=1_000)
    return NewJob(**{"task": "t", "payload": b"{}", "lease_ms": 30_000, "policy": policy, **changes})


def held(stage: Stage, n: int = 1, **changes: Any) -> list[Job]:
    """Jobs that the one who will be killed has begun with."""
    stage.put(*[job(**changes) for _ in range(n)])
    return stage.run(n, DYING)
