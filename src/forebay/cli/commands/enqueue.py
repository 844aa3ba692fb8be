"""`forebay enqueue`: enqueue a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
import msgspec

from forebay.app.app import Forebay
from forebay.app.job_options import CallOptions
from forebay.app.job_template import make_template
from forebay.cli.app_loader import load_app
from forebay.cli.job_filters import parse_pairs
from forebay.cli.options import Command, DurationParam, QueueParam, TaskParam, parse_instant_ms, with_store
from forebay.cli.output import Output
from forebay.cli.store_session import StoreSession
from forebay.cli.suggestions import suggest
from forebay.cli.task_argument_check import check_texts
from forebay.clock import SystemClock
from forebay.domain.job import NewJob
from forebay.domain.retry_policy import PRESETS
from forebay.errors import ConfigError, UnknownTask
from forebay.payload.codec import encode_call

# Options of the command that are passed on as call options.
_PLAIN: Final = (
    *("queue", "priority", "retries", "retry_policy", "id", "unique_key", "idempotency_key"),
    *("correlation_id", "client", "sequence"),
)
_DURATIONS: Final = ("delay", "timeout", "lease", "expires", "deadline", "idempotency_ttl")

OPTIONS: Final = (
    click.option("--queue", "-q", type=QueueParam(), help="The queue; default: that of the task."),
    click.option("--priority", type=int, help="-100 to 100; higher runs earlier."),
    click.option("--delay", type=DurationParam(), help="Run it after this time, such as 5m."),
    click.option("--run-at", metavar="TIME", help="Run it at this time: 2030-01-31T12:00:00+00:00."),
    click.option("--timeout", type=DurationParam(), help="How long an attempt may run, such as 30s."),
    click.option("--retries", type=int, help="How often a failed attempt is retried."),
    click.option("--retry-policy", metavar="PRESET", help=f"A preset retry policy: {', '.join(PRESETS)}."),
    click.option(
        "--lease", type=DurationParam(), help="How long a worker that does not answer holds the job."
    ),
    click.option("--expires", type=DurationParam(), help="Cancel it if it has not started within this time."),
    click.option(
        "--deadline", type=DurationParam(), help="The nearer the deadline, the earlier the job runs."
    ),
    click.option("--unique-key", metavar="KEY", help="At most one live job with this key."),
    click.option(
        "--idempotency-key",
        metavar="KEY",
        help="Enqueue once: the same key answers with the same job for --idempotency-ttl.",
    ),
    click.option(
        "--idempotency-ttl",
        type=DurationParam(),
        help="How long the idempotency key is kept; a day without it.",
    ),
    click.option("--sequence", metavar="NAME", help="Run it after the jobs of this sequence, one at a time."),
    click.option("--tag", "tags", multiple=True, help="A tag to find it by; may be repeated."),
    click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="JSON or text; may be repeated."),
    click.option("--correlation-id", help="An id that is logged with every attempt."),
    click.option("--client", metavar="NAME", help="The client, for queues with a rate per client."),
    click.option("--id", metavar="ID", help="The id of the job; default: a new one."),
)


def _with_call_options(func: Command) -> Command:
    for option in reversed(OPTIONS):
        func = option(func)
    return func


@click.command()
@click.argument("task", type=TaskParam())
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("--args", "args_json", metavar="JSON", help="Positional arguments as a JSON list.")
@click.option("--kwargs", "kwargs_json", metavar="JSON", help="Keyword arguments as a JSON object.")
@click.option(
    "--fail-on-conflict",
    is_flag=True,
    help="Fail if the id or a key is taken, instead of answering with that job.",
)
@_with_call_options
@with_store(create=True)
def enqueue(
    session: StoreSession,
    out: Output,
    task: str,
    values: tuple[str, ...],
    args_json: str | None,
    kwargs_json: str | None,
    fail_on_conflict: bool,
    **given: Any,
) -> None:
    """Enqueue a job.

    A VALUE is an argument: a plain word is text, NAME=TEXT a keyword argument. With := instead of =, JSON
    follows: `forebay enqueue jobs.greet Ada times:=2` calls greet("Ada", times=2).

    With an app the arguments are checked against the task, and the task's own options apply. Without an app
    the job is stored for any worker that has a task of this name.
    """
    args, kwargs = parse_call_arguments(values, args_json, kwargs_json)
    app = session.settings.get("app")
    options = build_call_options(given)
    job = (
        _build_app_job(load_app(app), task, options, args, kwargs)
        if app
        else _build_named_job(task, options, args, kwargs)
    )
    [handle] = session.client.enqueue([job], on_conflict="raise" if fail_on_conflict else "return")
    answer = {"id": handle.id, "is_new": handle.is_new, "queue": job.queue, "task": job.task}
    line = (
        f"job {handle.id} enqueued in {job.queue}"
        if handle.is_new
        else f"job {handle.id} has the key already"
    )
    out.print_message(answer, line)


def _build_app_job(
    app: Forebay, name: str, options: CallOptions, args: Sequence[Any], kwargs: dict[str, Any]
) -> NewJob:
    if name not in app.registry:
        raise UnknownTask(f"no task of this app is called {name!r}{suggest(name, app.registry)}")
    task = app.registry[name]
    task.check_fit(tuple(args), kwargs)
    check_texts(task, args, kwargs)
    return task.using(**options).job(*args, **kwargs)


def _build_named_job(name: str, options: CallOptions, args: Sequence[Any], kwargs: dict[str, Any]) -> NewJob:
    return make_template(name, options).build(encode_call(args, kwargs), SystemClock().now_ms)


def parse_call_arguments(
    values: Sequence[str], args_json: str | None, kwargs_json: str | None
) -> tuple[list[Any], dict[str, Any]]:
    """Parse the arguments of the call; raise ConfigError for a value that cannot be parsed."""
    args = _parse_json("--args", args_json, list) if args_json is not None else []
    kwargs = _parse_json("--kwargs", kwargs_json, dict) if kwargs_json is not None else {}
    for value in values:
        name, argument = _parse_argument(value)
        if name and name in kwargs:
            raise ConfigError(f"the argument {name} is given twice")
        if name:
            kwargs[name] = argument
        else:
            args.append(argument)
    return args, kwargs


def _parse_argument(value: str) -> tuple[str, Any]:
    """Return the name of an argument, empty for a positional one, and its value."""
    name, sign, text = value.partition("=")
    if not sign:
        return "", value
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if name and not name.isidentifier():
        raise ConfigError(
            f"{name!r} in {value!r} cannot name an argument; write a text with = in it as "
            f":={msgspec.json.encode(value).decode()}"
        )
    if not name and not is_json:
        raise ConfigError(f"{value!r} has no name before =; write NAME=TEXT, or :=JSON")
    return name, _parse_json(value, text, object) if is_json else text


def _parse_json(source: str, text: str, kind: type) -> Any:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise ConfigError(f"{source} is not JSON: {exc}") from exc
    if not isinstance(value, kind):
        expected = "list" if kind is list else "object"
        raise ConfigError(f"{source} must be a JSON {expected}, not {text!r:.60}")
    return value


def build_call_options(given: dict[str, Any]) -> CallOptions:
    """Return the given options as call options."""
    options: Any = {name: given[name] for name in _PLAIN if given[name] is not None}
    options |= {name: timedelta(milliseconds=given[name]) for name in _DURATIONS if given[name] is not None}
    if given["run_at"] is not None:
        options["run_at"] = datetime.fromtimestamp(parse_instant_ms(given["run_at"]) / 1_000, UTC)
    if given["tags"]:
        options["tags"] = given["tags"]
    if given["metadata"]:
        options["metadata"] = parse_pairs(given["metadata"])
    chosen: CallOptions = options
    return chosen
