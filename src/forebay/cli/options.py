"""Click options and parameter types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from forebay.cli.output import Output
from forebay.cli.settings import read_settings
from forebay.cli.store_session import open_session
from forebay.domain.api_key import NO_QUOTA, Quota
from forebay.domain.durations_and_instants import instant_ms
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState, parse_state
from forebay.errors import ConfigError, ForebayError
from forebay.stores.contract.reader import Reader

Command: TypeAlias = Callable[..., None]
if TYPE_CHECKING:
    _ParamType: TypeAlias = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not generic before click 8.5

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?\Z")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_MAX_COMPLETED_JOBS: Final = 500  # newest jobs whose task names are offered
_MAX_DURATION_MS: Final = 100 * 366 * 86_400_000
FIRST_YEAR, LAST_YEAR = 1971, 2099  # the range that every store holds, in any time zone


def parse_duration_ms(value: str) -> int:
    """Parse `90`, `90s`, `5m`, `2h`, `7d` or `250ms`; a bare number is in seconds."""
    match = _DURATION.match(value.strip())
    if match is None:
        raise ConfigError(f"{value!r:.60} is not a duration; write 30s, 5m, 2h, 7d or 250ms")
    ms = float(match[1]) * _UNITS[match[2] or "s"]
    if ms > _MAX_DURATION_MS:
        raise ConfigError(f"{value!r:.60} is longer than a hundred years")
    return round(ms)


def parse_instant_ms(value: str) -> int:
    """Parse an ISO date and time with its zone."""
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"{value!r:.60} is not a time; write 2030-01-31T12:00:00+00:00") from None
    if when.tzinfo is None:
        raise ConfigError(f"{value!r:.60} has no time zone; write it as in 2030-01-31T12:00:00+00:00")
    if not FIRST_YEAR <= when.year <= LAST_YEAR:
        raise ConfigError(f"{value!r:.60} is not a time between {FIRST_YEAR} and {LAST_YEAR}")
    return instant_ms("time", when)


_QUOTA: Final = {
    "bytes_rate": "Bytes per second, requests and responses together,",
    "max_streams": "Open streams at a time",
    "max_waits": "Waiting requests at a time",
    "max_connections": "Open connections",
}


class DurationParam(_ParamType):
    """Duration in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else _parse_or_fail(self, parse_duration_ms, value, param, ctx)


class InstantParam(_ParamType):
    """Instant, or duration counted back from now. The value is a function of `now`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[int], int]:
        if callable(value):
            return value  # type: ignore[no-any-return]  # click converts a converted value again
        if _DURATION.match(value.strip()):
            back = _parse_or_fail(self, parse_duration_ms, value, param, ctx)
            return lambda now: max(0, now - back)
        at = _parse_or_fail(self, parse_instant_ms, value, param, ctx)
        return lambda now: at


class JobStateParam(_ParamType):
    """Job state, by its name here or in another job queue."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JobState:
        return value if isinstance(value, JobState) else _parse_or_fail(self, parse_state, value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(state) for state in JobState if state.startswith(incomplete)]


class QueueParam(_ParamType):
    """Queue name, completed from the store."""

    name = "queue"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _complete_names(ctx, incomplete, lambda reader: [queue.name for queue in reader.queues()])


class TaskParam(_ParamType):
    """Task name, completed from the newest jobs in the store."""

    name = "task"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _complete_names(
            ctx,
            incomplete,
            lambda reader: [job.task for job in reader.search(JobQuery(), limit=_MAX_COMPLETED_JOBS).jobs],
        )


def _complete_names(
    ctx: click.Context, incomplete: str, names: Callable[[Reader], Iterable[str]]
) -> list[CompletionItem]:
    """Return matching names from the store of the command; none if the store is named by an app.

    Completion must not import the app: a key press must not run user code.
    """
    flags = {name: ctx.params.get(name) for name in ("url", "app")}
    try:
        settings = read_settings(flags, config=ctx.find_root().params.get("config"))
        if settings.store[0] == "app":
            return []
        with open_session(settings) as session:
            found = sorted(set(names(session.reader)))
    except ForebayError:
        return []  # an error message would disturb the command line that is being typed
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _parse_or_fail(
    kind: Any,
    parse: Callable[[str], Any],
    value: str,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    try:
        return parse(value)
    except ConfigError as exc:
        kind.fail(str(exc), param, ctx)


def url_options(func: Command) -> Command:
    """Add `--url`, `--app` and `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs."),
        click.option("--app", metavar="MODULE:APP", help="Use the store and the tasks of this app."),
        click.option("--url", metavar="URL", help="The store, such as sqlite:///jobs.db."),
    ):
        func = option(func)
    return func


def with_store(*, create: bool = False) -> Callable[[Command], Command]:
    """Call a command as `func(session, out, ...)`, with an open store session and its output."""

    def decorate(func: Command) -> Command:
        @url_options
        @wraps(func)
        def command(*, url: str | None, app: str | None, as_json: bool, **values: Any) -> None:
            config = click.get_current_context().find_root().obj
            settings = read_settings({"url": url, "app": app}, config=config)
            with open_session(settings, create=create) as session:
                func(session, Output(as_json=as_json), **values)

        return command

    return decorate


def quota_options(
    subject: str, defaults: Quota = NO_QUOTA, connections: str = "max_connections"
) -> Callable[[Command], Command]:
    """Add `--max-waits`, `--max-streams`, `--bytes-rate`, and an option for connections of this name."""

    def decorate(func: Command) -> Command:
        for name, text in _QUOTA.items():
            parameter = connections if name == "max_connections" else name
            option, default = f"--{parameter.replace('_', '-')}", getattr(defaults, name)
            has_default = default is not None
            add = click.option(
                option, type=int, default=default, show_default=has_default, help=f"{text} {subject}."
            )
            func = add(func)
        return func

    return decorate


def yes_option(func: Command) -> Command:
    """Add `--yes`, for commands that ask for confirmation."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")(func)


def limit_option(default: int) -> Callable[[Command], Command]:
    """Add `--limit`, for lists."""
    return click.option(
        "--limit",
        "-n",
        type=click.IntRange(1, 100_000),
        default=default,
        show_default=True,
        help="At most this many.",
    )
