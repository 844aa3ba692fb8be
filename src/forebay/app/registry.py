"""Which function runs which job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forebay.app.task import Task
from forebay.errors import ConfigError, UnknownTask


class Registry:
    """The tasks of one program by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; a second one of the same name is an error, and the first stays."""
        taken = self._tasks.get(task.name)
        if taken is not None:
            raise ConfigError(
                f"two tasks are called {task.name!r}: {_where(taken)} and {_where(task)}; "
                "give one of them another name"
            )
        self._tasks[task.name] = task

    def returned(self, name: str, value: Any) -> Any:
        """A result as its task's annotation wants it; as it was stored if the task is unknown here."""
        task = self._tasks.get(name)
        return value if task is None else task.returned(value)

    def __getitem__(self, name: str) -> Task[..., Any]:
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(f"no task is called {name!r} in this program") from None

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        # A copy, made in one step: a worker goes through the names while another thread adds one.
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)


def _where(task: Task[..., Any]) -> str:
    return f"{task.func.__module__}.{task.func.__qualname__}"
