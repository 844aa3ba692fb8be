"""Typed settings from flags, environment and files. The only reader of the environment.

One order for all settings: flag, environment, `forebay.toml`, `[tool.forebay]` in `pyproject.toml`, default.
The first that is set counts. The order is documented in docs/reference/settings.md.
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
from forebay.domain.actor_name import check_actor
from forebay.domain.alert_channel import SECRET_VARIABLE_PREFIX
from forebay.errors import ConfigError
from forebay.telemetry.log_setup import LogFormat

PREFIX: Final = "FOREBAY_"
DEFAULT_URL: Final = "sqlite:///forebay.db"
FILES: Final = ("forebay.toml", "pyproject.toml")
# The path of a settings file; not a setting itself.
CONFIG: Final = "FOREBAY_CONFIG"
# Read by one command, and by Django's management command; not settings.
OUTBOX_DATABASE: Final = "FOREBAY_OUTBOX_DATABASE"
DJANGO_BACKEND: Final = "FOREBAY_DJANGO_BACKEND"

# Every setting and its type in a file; in the environment every value is text.
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

# Settings that the worker command does not take.
_NOT_FOR_WORKERS: Final = (
    "url", "api_key", "actor", "encryption_keys", "blob_store", "masked_names", "require_encryption",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Value and its source. The source with the lowest `rank` wins."""

    value: Any
    source: str
    rank: int


class Settings:
    """Settings of one command, with their sources."""

    def __init__(self, found: Mapping[str, Setting]) -> None:
        self.found: dict[str, Setting] = dict(found)

    def get(self, name: str) -> Any:
        setting = self.found.get(name)
        return None if setting is None else setting.value

    @property
    def store(self) -> tuple[str, str]:
        """The store: ("url", address) or ("app", package.module:app).

        The source nearer to the command wins; in the same source the URL wins.
        """
        named = [
            (self.found[name].rank, position, name)
            for position, name in enumerate(("url", "app"))
            if name in self.found
        ]
        if not named:
            return "url", DEFAULT_URL
        name = min(named)[2]
        return name, str(self.found[name].value)

    @property
    def actor(self) -> str:
        """Name of the actor in the audit log."""
        given = str(self.get("actor") or "")
        check_actor(given)
        return given or f"cli:{_user_name()}@{socket.gethostname()}".replace("#", "_")

    @property
    def masked_names(self) -> list[str]:
        """Names that are masked in addition to those that look secret."""
        given = self.get("masked_names") or []
        names = given if isinstance(given, list) else given.split(",")
        return [name.strip() for name in names if name.strip()]

    def worker_defaults(self) -> dict[str, Any]:
        """Return the defaults of the worker command's options."""
        names = [name for name in SETTING_TYPES if name not in _NOT_FOR_WORKERS]
        chosen = {name: self.found[name].value for name in names if name in self.found}
        for name in ("queues", "allow_webhooks_to"):
            if isinstance(chosen.get(name), list):
                chosen[name] = ",".join(chosen[name])
        return chosen


def read_settings(flags: Mapping[str, Any] | None = None, config: str | None = None) -> Settings:
    """Read all settings of a command that runs in the current folder."""
    found: dict[str, Setting] = {}
    sources = [_read_flags(flags or {}), _read_environment(os.environ), *_read_files(config)]
    for rank, (source, values) in enumerate(sources):
        for name, value in values.items():
            found.setdefault(name, Setting(value=value, source=_describe_source(source, name), rank=rank))
    return Settings(found)


def unknown_variables() -> list[str]:
    """Return environment variables that look like settings and are not."""
    known = {CONFIG, OUTBOX_DATABASE, DJANGO_BACKEND, *(PREFIX + name.upper() for name in SETTING_TYPES)}
    return sorted(
        name
        for name in os.environ
        if name.startswith(PREFIX) and not name.startswith(SECRET_VARIABLE_PREFIX) and name not in known
    )


def _read_flags(flags: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return "--", {name: value for name, value in flags.items() if value is not None}


def _read_environment(environment: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    # Many shells and containers set a variable to the empty text to unset it.
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
    except (KeyError, OSError, ImportError):  # in a container the user id may have no name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
