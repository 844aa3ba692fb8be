"""Flags, environment and file into typed settings. The only reader of the environment.

One order for all: a flag wins over the environment, that over `forebay.toml`, that over `[tool.forebay]` in
`pyproject.toml`, that over the default. docs/reference/settings.md says it to users.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.cli.suggestions import suggest
from forebay.domain.alert_channel import SECRET_VARIABLE_PREFIX
from forebay.domain.text import check_actor
from forebay.errors import ConfigError
from forebay.telemetry.logs import LogFormat

PREFIX: Final = "FOREBAY_"
DEFAULT_URL: Final = "sqlite:///forebay.db"
FILES: Final = ("forebay.toml", "pyproject.toml")
# Names a file of settings; no setting itself.
CONFIG: Final = "FOREBAY_CONFIG"
# Of one command, and of Django's.
OUTBOX_DATABASE: Final = "FOREBAY_OUTBOX_DATABASE"
DJANGO_BACKEND: Final = "FOREBAY_DJANGO_BACKEND"

# Every setting with the type it must have in a file; in the environment all are texts.
SETTING_TYPES: Final[dict[str, Any]] = {
    "url": str,
    "api_key": str,
    "app": str,
    "actor": str,
    "queues": list[str] | str,
    "threads": int,
    "coroutines": int,
    "isolated": int,
    "drain_timeout": float,
    "heartbeat": float,
    "strict": bool,
    "processes": int,
    "max_jobs": int,
    "max_memory": float,
    "max_age": float,
    "max_abandoned": int,
    "metrics": bool,
    "encryption_keys": str,
    "blob_store": str,
    "masked_names": list[str] | str,
    "allow_webhooks_to": list[str] | str,
    "secrets_folder": str,
    "require_encryption": bool,
    "log_format": LogFormat,
    "log_level": str,
}

# Settings of other commands.
_NOT_FOR_WORKERS: Final = (
    "url", "api_key", "actor", "encryption_keys", "blob_store", "masked_names", "require_encryption",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and where it was said. The lower its `rank`, the sooner it is believed."""

    value: Any
    source: str
    rank: int


class Settings:
    """What is set, and where."""

    def __init__(self, found: Mapping[str, Setting]) -> None:
        self.found: dict[str, Setting] = dict(found)

    def get(self, name: str) -> Any:
        setting = self.found.get(name)
        return None if setting is None else setting.value

    @property
    def store(self) -> tuple[str, str]:
        """How the store is named: ("url", address) or ("app", package.module:app).

        Whichever was said nearer to the command counts; said in one place, the URL does.
        """
        named = [
            (self.found[name].rank, place, name)
            for place, name in enumerate(("url", "app"))
            if name in self.found
        ]
        if not named:
            return "url", DEFAULT_URL
        name = min(named)[2]
        return name, str(self.found[name].value)

    @property
    def actor(self) -> str:
        """What the audit log calls whoever runs the command."""
        given = str(self.get("actor") or "")
        check_actor(given)
        return given or f"cli:{_user_name()}@{socket.gethostname()}".replace("#", "_")

    @property
    def masked_names(self) -> list[str]:
        """The names whose values are masked besides those that look secret anyway."""
        given = self.get("masked_names") or []
        names = given if isinstance(given, list) else given.split(",")
        return [name.strip() for name in names if name.strip()]

    def worker_defaults(self) -> dict[str, Any]:
        """What the worker command takes when no flag says otherwise."""
        names = [name for name in SETTING_TYPES if name not in _NOT_FOR_WORKERS]
        chosen = {name: self.found[name].value for name in names if name in self.found}
        for name in ("queues", "allow_webhooks_to"):
            if isinstance(chosen.get(name), list):
                chosen[name] = ",".join(chosen[name])
        return chosen


def read_settings(flags: Mapping[str, Any] | None = None, config: str | None = None) -> Settings:
    """All settings as they hold for a command in the present folder."""
    found: dict[str, Setting] = {}
    sources = [_read_flags(flags or {}), _read_environment(os.environ), *_read_files(config)]
    for rank, (source, values) in enumerate(sources):
        for name, value in values.items():
            found.setdefault(name, Setting(value=value, source=_describe_source(source, name), rank=rank))
    return Settings(found)


def unknown_variables() -> list[str]:
    """Variables of the environment that look like settings and are none."""
    known = {CONFIG, OUTBOX_DATABASE, DJANGO_BACKEND, *(PREFIX + name.upper() for name in SETTING_TYPES)}
    return sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX) and not name.startswith(SECRET_VARIABLE_PREFIX) and name not in known
    )


def _read_flags(flags: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return "--", {name: value for name, value in flags.items() if value is not None}


def _read_environment(environment: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    # An empty variable is how many shells and containers say that there is none.
    texts = {name: environment.get(PREFIX + name.upper(), "") for name in SETTING_TYPES}
    values = {
        name: _convert(name, text, PREFIX + name.upper(), strict=False)
        for name, text in texts.items()
        if text
    }
    return PREFIX, values


def _describe_source(source: str, name: str) -> str:
    names = {"--": f"--{name}", PREFIX: PREFIX + name.upper()}
    return names.get(source, source)


def _read_files(config: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    config = config or os.environ.get(CONFIG) or None
    if config is not None:
        yield config, _read_file(Path(config), must_exist=True)
        return
    for name in FILES:
        yield name, _read_file(Path(name), must_exist=False)


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    if not must_exist and not path.exists():
        return {}
    table = _load_toml(path)
    if path.name == "pyproject.toml":
        tool = table.get("tool", {})
        table = tool.get("forebay", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: forebay must be a table of settings: [tool.forebay]")
    for name in table:
        if name not in SETTING_TYPES:
            otherwise = f"the settings are {', '.join(sorted(SETTING_TYPES))}"
            raise ConfigError(
                f"{path}: there is no setting {name!r}{suggest(name, SETTING_TYPES, otherwise=otherwise)}"
            )
    return {name: _convert(name, value, f"{path}: {name}", strict=True) for name, value in table.items()}


def _load_toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most commands run where there is no file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"the settings in {path} cannot be read: {exc.strerror or exc}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not a TOML file: {exc}") from exc


def _convert(name: str, value: Any, source: str, *, strict: bool) -> Any:
    try:
        return msgspec.convert(value, SETTING_TYPES[name], strict=strict)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"{source} is wrong: {exc}") from exc


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run under a number that has no name
        return str(os.getuid()) if hasattr(os, "getuid") else "somebody"
