"""Loader of the app that has a task, in an isolated process: it imports the modules of the program."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import NoReturn

from forebay.app.app import Forebay
from forebay.errors import ConfigError
from forebay.worker.executors.task_module_origin import ProgramOrigin, TaskModule


class AppLoader:
    """Loads modules of the program as they are needed."""

    def __init__(self, origin: ProgramOrigin) -> None:
        self._origin = origin
        self._app: Forebay | None = None

    def app(self, location: TaskModule) -> Forebay:
        """Return the app that has this task, loaded with the first job and found again for the others. Raises
        ConfigError if there is none, and whatever importing the program raises."""
        if self._app is None:
            self._restore_environment()
            self._app = self._load_app() if self._origin.app else self._find_app(location)
            if not self._app.engine.features.is_shared:
                # What this process stored there would be invisible to all others.
                vars(self._app.engine).update(store=_refuse, reader=_refuse)
        if location.task not in self._app.registry:
            self._load_module(location.module)  # registered by a module that the others do not import
        if location.task not in self._app.registry:
            raise _missing_error(location)
        return self._app

    def _restore_environment(self) -> None:
        if self._origin.folder is not None:
            with suppress(OSError):  # it was removed; other folders can be imported from all the same
                os.chdir(self._origin.folder)
        sys.path[:] = self._origin.path
        sys.argv[:] = self._origin.argv

    def _load_app(self) -> Forebay:
        module, _, name = (self._origin.app or "").partition(":")
        app = getattr(import_module(module), name, None)
        if not isinstance(app, Forebay):
            raise ConfigError(f"{self._origin.app} is no Forebay app in the isolated process")
        return app

    def _find_app(self, location: TaskModule) -> Forebay:
        self._load_module(location.module)
        # By a scan of all living objects: an app need not have a name in any module. By type alone, since
        # `isinstance` asks objects for their class, and some answer with surprises.
        app: Forebay
        for app in (instance for instance in gc.get_objects() if issubclass(type(instance), Forebay)):
            if location.task in app.registry:
                return app
        raise _missing_error(location)

    def _load_module(self, name: str) -> None:
        """Import a module.

        The module that is run as a program is loaded under its real name. So its code below the guard `if
        __name__ == "__main__":` is not run again.
        """
        origin = self._origin
        if name != "__main__":
            import_module(name)
        elif origin.main is not None and origin.main not in sys.modules:
            if origin.main_file is None:
                import_module(origin.main)
            else:
                _load_file(origin.main, origin.main_file)


def _refuse() -> NoReturn:
    raise ConfigError(
        "the memory engine lives in the worker's process, and an isolated task cannot reach it: hand jobs "
        "back with current_job().follow_up(...), or use sqlite:///..."
    )


def _load_file(name: str, file: str) -> ModuleType:
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} cannot be loaded as a module, and isolated tasks are defined in it")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _missing_error(location: TaskModule) -> ConfigError:
    return ConfigError(
        f"task {location.task} is not registered after importing {location.module} in the isolated process: "
        "make the app and its isolated tasks where the module is imported, not in a function that is called "
        'later or under `if __name__ == "__main__":`'
    )
