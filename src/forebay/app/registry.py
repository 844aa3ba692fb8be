"""Registry of a program's tasks, schedules, hooks and middleware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay.app.task import Task
from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.errors import ConfigError, UnknownTask

if TYPE_CHECKING:
    from forebay.app.middleware import Middleware
    from forebay.domain.schedule import ScheduleDefinition


class Registry:
    """The tasks of one program by name and by alias, with its schedules, its hooks and its middleware."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        self.hooks: Hooks = Hooks()
        self.middleware: list[Middleware] = []
        self.schedules: dict[str, ScheduleDefinition] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register a task under its name and its aliases. If one of them is taken, raise ConfigError and
        register nothing."""
        names = (task.name, *task.aliases)
        for name in names:
            taken = self._tasks.get(name)
            if taken is not None:
                raise ConfigError(
                    f"two tasks are called {name!r}: {_describe_location(taken, name)} and "
                    f"{_describe_location(task, name)}; "
                    "give one of them another name"
                )
        self._tasks.update(dict.fromkeys(names, task))

    def add_schedule(self, definition: ScheduleDefinition) -> None:
        """Declare a schedule; two of one name are an error."""
        if definition.name in self.schedules:
            raise ConfigError(
                f"two schedules are called {definition.name!r}; give one of them another name with name=..."
            )
        self.schedules[definition.name] = definition

    def coerce_result(self, name: str, value: Any) -> Any:
        """Return a result in the class that its task's annotation names; unchanged if the task is unknown
        here."""
        task = self._tasks.get(name)
        return value if task is None else task.coerce_result(value)

    def __getitem__(self, name: str) -> Task[..., Any]:
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(f"no task is called {name!r} in this program") from None

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names that jobs may have, aliases included."""
        # A copy, made in one step: a worker iterates over the names while another thread adds one.
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)


def _describe_location(task: Task[..., Any], name: str) -> str:
    location = f"{task.func.__module__}.{task.func.__qualname__}"
    return location if task.name == name else f"{location} (an alias of {task.name!r})"
