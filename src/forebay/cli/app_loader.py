"""Import of the app that `--app` names."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from forebay.app.app import Forebay
from forebay.cli.errors import BrokenApp
from forebay.cli.suggestions import suggest
from forebay.errors import ConfigError, ForebayError


def load_app(target: str) -> Forebay:
    """Import the app `package.module:name`; the current folder is on the path."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name or module_name.startswith("."):
        raise ConfigError(f"{target!r} does not name an app; write package.module:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _import_app_module(module_name)
    found = getattr(module, name, None)
    if not isinstance(found, Forebay):
        apps = _suggest_apps(module_name, module)
        if found is None and not hasattr(module, name):
            raise ConfigError(f"there is no {name!r} in {module_name}{apps}")
        raise ConfigError(f"{target} is a {type(found).__name__}, not a Forebay app{apps}")
    return found


def _suggest_apps(name: str, module: ModuleType) -> str:
    apps = [f"{name}:{known}" for known, value in vars(module).items() if isinstance(value, Forebay)]
    if apps:
        return f"; did you mean {' or '.join(apps)}?"
    return f"; write `app = Forebay(...)` into {name}, and name it as {name}:app"


def _suggest_modules(name: str) -> str:
    here = [path.stem for path in Path.cwd().glob("*.py")]
    here += [path.parent.name for path in Path.cwd().glob("*/__init__.py")]
    remedy = f"go to the folder of {name}.py, or install the package that has it"
    return suggest(name, here, otherwise=remedy)


def _import_app_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ForebayError:
        raise  # its message already has a remedy
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise ConfigError(
                f"there is no module {name!r} here or on the path{_suggest_modules(exc.name)}"
            ) from exc
        raise BrokenApp(f"{name} could not be imported: {exc}") from exc
    except SystemExit as exc:
        raise BrokenApp(
            f"{name} could not be imported: it ends the program, by SystemExit({exc.code!r}); put code that "
            'is to run under `if __name__ == "__main__":`'
        ) from exc
    except Exception as exc:  # code of the user, which may raise anything
        raise BrokenApp(f"{name} could not be imported: {type(exc).__name__}: {exc}") from exc
