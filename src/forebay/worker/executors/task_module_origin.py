"""Origin of a program: where an isolated process finds its modules and tasks."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.errors import ConfigError
from forebay.telemetry.log_setup import LogConfig, current_log_config


class TaskModule(msgspec.Struct, frozen=True):
    """The module of a task's function. Importing it registers the task."""

    task: str
    module: str


class ProcessIdentity:
    """Whether this process is isolated. One for the whole process: the program's own code, which is imported
    again in an isolated process, has no reference to anything of ours."""

    is_isolated = False


class ProgramOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """A program, for a process that is to load it again.

    `app` is the name `package.module:app` that a worker program was given. An embedded worker has none, and
    its tasks are found through the modules of their functions. `main` is the module that is run as a program,
    by its real name, and `main_file` its file where it cannot be imported by that name. `folder` is where the
    program was when its worker started; a task may have changed the folder since.
    """

    app: str | None
    main: str | None
    main_file: str | None
    folder: str | None
    path: tuple[str, ...]
    argv: tuple[str, ...]
    logs: LogConfig | None


def present_folder() -> str | None:
    """Return the current folder of this process; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def origin_of_this_program(app: str | None, folder: str | None) -> ProgramOrigin:
    main, file = _find_main()
    return ProgramOrigin(
        app=app,
        main=main,
        main_file=file,
        folder=folder,
        # An empty entry means the current folder, which may have changed by then.
        path=tuple(entry or folder or "" for entry in sys.path),
        argv=tuple(sys.argv),
        logs=current_log_config(),
    )


def _find_main() -> tuple[str | None, str | None]:
    """Return the real name of the module that is run as a program, and its file unless it can be imported."""
    main = sys.modules["__main__"]
    spec, file = main.__spec__, getattr(main, "__file__", None)
    if spec is not None:
        return spec.name, None
    if file is None:
        return None, None
    return os.path.splitext(os.path.basename(file))[0], os.path.abspath(file)


def find_task_module(task: Task[..., Any]) -> TaskModule:
    return TaskModule(task.name, getattr(task.func, "__module__", None) or "")


def check_not_isolated() -> None:
    """Raise ConfigError in an isolated process: a program that starts a worker wherever it is imported would
    start processes that start processes, without end."""
    if ProcessIdentity.is_isolated:
        raise ConfigError(
            "a worker must not be started in an isolated process, which imports the program again to run its "
            'tasks: put what starts it under `if __name__ == "__main__":`'
        )


def check_loadable(registry: Registry) -> None:
    """Raise ConfigError for a task that no other process could find. An error that only an import of the
    program shows is reported by the first job."""
    main, _ = _find_main()
    for name in registry:
        task = registry[name]
        if task.execution_policy.isolated and find_task_module(task).module == "__main__" and main is None:
            raise ConfigError(
                f"task {name} is isolated, and a process of its own cannot load it: its function was typed "
                "in or comes from standard input; put it into a file"
            )
