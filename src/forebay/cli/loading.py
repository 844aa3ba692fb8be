"""Finding the app that a command is about."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from forebay.app.app import Forebay
from forebay.errors import ConfigError


def load_app(target: str) -> Forebay:
    """The app named as `package.module:name`, looked for from the present folder on."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"{target!r} does not name an app; write package.module:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not module_name.startswith(exc.name):
            raise  # the module is there, and something that it imports is not
        raise ConfigError(f"there is no module {module_name!r} here or on the path") from exc
    found = getattr(module, name, None)
    if not isinstance(found, Forebay):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(f"{target} is {what}, not a Forebay app")
    return found
