"""Log set-up of Forebay's programs: text or JSON lines, and levels by component."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from forebay.domain.storable_text import clean_text
from forebay.errors import ConfigError

LogFormat: TypeAlias = Literal["text", "json"]
TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
# Components with a level of their own: the second word in the names of Forebay's loggers.
COMPONENTS: Final = (
    "app",
    "cli",
    "compat",
    "maintenance",
    "operations",
    "payload",
    "service",
    "stores",
    "task",
    "telemetry",
    "worker",
)
_LEVEL: Final = re.compile(r"(?:([\w.-]+)\s*=\s*)?(\w+)")
MAX_SHOWN: Final = 1_000
# Attributes of every record, and those that another formatter leaves on it.
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "in_job"}


def component_of(name: str) -> str:
    """Return the component of a logger name; the name itself if the logger is not Forebay's."""
    words = name.split(".")
    return words[1] if words[0] == "forebay" and len(words) > 1 else name


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object a line. `event` is the message without its values, so equal events
    have equal texts; `message` has the values. Fields from a filter or `extra` are included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "component": component_of(record.name),
            "logger": record.name,
            "event": str(record.msg),
            "message": record.getMessage(),
        }
        own = {
            name: value
            for name, value in vars(record).items()
            if name not in _PLAIN and name not in line and value is not None
        }
        line |= own
        if record.exc_info and record.exc_info[0] is not None:
            line["error_type"] = record.exc_info[0].__qualname__
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _encode_line(line)


def _encode_line(line: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=_format_value).decode()
    except Exception:  # the program's own `repr` may raise, and some texts cannot be encoded
        return msgspec.json.encode(
            {clean_text(name): clean_text(_format_value(value)) for name, value in line.items()}
        ).decode()


def _format_value(value: Any) -> str:
    try:
        return value if isinstance(value, str) else repr(value)[:MAX_SHOWN]
    except Exception:
        return "(cannot be shown)"


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Log configuration of a program. `levels` are by the names of loggers, with "" for all others."""

    format: LogFormat
    levels: dict[str, int]

    def set_up(self) -> None:
        """Configure logging, unless the program has its own handlers."""
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if self.format == "json" else logging.Formatter(TEXT))
        logging.basicConfig(level=self.levels[""], handlers=[handler])
        for name, level in self.levels.items():
            if name:
                logging.getLogger(name).setLevel(level)


def current_log_config() -> LogConfig | None:
    """Return this program's log configuration, for a child process; None if logging is not configured."""
    root = logging.getLogger()
    if not root.handlers:
        return None
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers)
    # A copy: other threads may create loggers concurrently.
    known = dict(root.manager.loggerDict)
    own = {name: one.level for name, one in known.items() if isinstance(one, logging.Logger) and one.level}
    return LogConfig(format="json" if is_json else "text", levels={**own, "": root.level})


def parse_levels(text: str) -> dict[str, int]:
    """Parse levels of a setting: `info`, or `warning,worker=debug,shop.mail=debug`."""
    levels = {"": logging.INFO}
    for part in text.split(","):
        match = _LEVEL.fullmatch(part.strip())
        level = logging.getLevelNamesMapping().get(match[2].upper()) if match else None
        if match is None or level is None:
            raise ConfigError(
                "log_level takes debug, info, warning or error, also for parts as in info,worker=debug, "
                f"and not {text!r:.100}"
            )
        name = match[1] or ""
        levels[f"forebay.{name}" if name in COMPONENTS else name] = level
    return levels
