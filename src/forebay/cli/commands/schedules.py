"""`forebay schedules`: look at schedules, save them, pause, fire and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, cast

import click

from forebay.app.options import CallOptions
from forebay.app.registry import Registry
from forebay.app.schedule_options import ScheduleTimingOptions
from forebay.app.schedules import Schedules, all_schedules, save_declared
from forebay.cli.app_loader import load_app
from forebay.cli.commands.enqueue import parse_call_arguments
from forebay.cli.commands.workers import DefaultListGroup
from forebay.cli.json_format import decode_arguments, iso_instant, schedule_json, schedule_run_json
from forebay.cli.options import (
    Command,
    DurationParam,
    QueueParam,
    TaskParam,
    limit_option,
    url_options,
    with_store,
    yes_option,
)
from forebay.cli.output import Output, confirm, format_duration, format_instant, print_fields, print_table
from forebay.cli.settings import read_settings
from forebay.cli.store_session import StoreSession, open_session
from forebay.cli.suggestions import suggest
from forebay.clock import SystemClock
from forebay.domain.job import NewJob
from forebay.domain.schedule import (
    MAX_STORED_RUNS,
    CatchUp,
    MissedRuns,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleRun,
    add_missed_runs,
    missed_runs_since,
)
from forebay.domain.schedule_runs import next_runs
from forebay.errors import ConfigError, ScheduleNotFound

NAME = click.argument("name", metavar="SCHEDULE")
RUNS = click.option(
    "--runs", "-r", type=click.IntRange(1, 1_000), default=5, show_default=True, help="How many next runs."
)
# Options of the commands that are options of a schedule as they are, and those that are lengths or times.
_PLAIN: Final = ("cron", "timezone", "catch_up", "catch_up_limit", "overlap", "unique_key", "max_runs")
_DURATIONS: Final = ("every", "jitter", "catch_up_within", "unique_for")
_INSTANTS: Final = ("at", "start", "end")

TIMING_OPTIONS: Final = (
    click.option("--cron", metavar="LINE", help='Five fields, or six with seconds first: "0 2 * * *".'),
    click.option(
        "--every", type=DurationParam(), help="An interval, such as 5m; it counts from --start or 1970."
    ),
    click.option("--at", metavar="TIME", help="Once, at this time: 2030-01-31T12:00."),
    click.option("--timezone", "--tz", metavar="ZONE", help="Such as Europe/Berlin; UTC without it."),
    click.option("--start", metavar="TIME", help="No run before this time."),
    click.option("--end", metavar="TIME", help="No run after this time."),
    click.option("--jitter", type=DurationParam(), help="Fire up to so much later, by chance."),
    click.option(
        "--catch-up",
        type=click.Choice([one.value for one in CatchUp]),
        help="For runs that nobody was there to fire.",
    ),
    click.option("--catch-up-limit", type=int, help="With --catch-up all: at most this many; 10 without it."),
    click.option("--catch-up-within", type=DurationParam(), help="None that are older; a day without it."),
    click.option(
        "--overlap",
        type=click.Choice([one.value for one in Overlap]),
        help="While the job before has not ended.",
    ),
    click.option("--unique-key", metavar="KEY", help="At most one job with this key in --unique-for."),
    click.option("--unique-for", type=DurationParam(), help="How long that key is held; 5m without it."),
    click.option("--max-runs", type=int, help="End after so many jobs."),
)


def _with_timing_options(func: Command) -> Command:
    for option in reversed(TIMING_OPTIONS):
        func = option(func)
    return func


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: `forebay schedules`, `forebay schedules add nightly jobs.report --cron '0 2 * * *'`, "
    "`forebay schedules pause nightly`, `forebay schedules next nightly`.",
)
def schedules() -> None:
    """List, show, add, pause, fire and remove schedules.

    Workers fire them; no program of its own is needed. Without a command the schedules are listed.
    """


@schedules.command("list")
@click.option("--enabled", is_flag=True, help="Without those that are paused.")
@click.option("--task", help="Those of one task.")
@with_store()
def list_schedules(session: StoreSession, out: Output, enabled: bool, task: str | None) -> None:
    """List the schedules. This is what `forebay schedules` alone does."""
    found = _open_schedules(session).list(enabled_only=enabled, task=task)
    out.print_result({"schedules": [schedule_json(one) for one in found]}, lambda: _print_schedules(found))


def _print_schedules(found: Sequence[Schedule]) -> None:
    rows = [
        (
            one.name,
            one.definition.job.task,
            one.definition.describe_times(),
            "paused" if one.is_paused else format_instant(one.next_run_at) or "over",
            format_instant(one.last_run_at),
            one.enqueued_runs,
            one.skipped_runs,
            one.failed_runs,
        )
        for one in found
    ]
    print_table(("schedule", "task", "when", "next", "last", "fired", "skipped", "failed"), rows)


@schedules.command()
@NAME
@RUNS
@limit_option(10)
@with_store()
def show(session: StoreSession, out: Output, name: str, runs: int, limit: int) -> None:
    """Show one schedule, its next runs and what became of the last ones."""
    one = _require_schedule(session, name)
    coming = _list_next_runs(session, one.definition, runs)
    past = session.reader.schedule_runs(name, limit=min(limit, 1_000))
    answer = {
        **schedule_json(one),
        **decode_arguments(one.definition.job.payload),
        "next_runs": [iso_instant(at) for at in coming],
        "history": [schedule_run_json(firing) for firing in past],
    }
    out.print_result(answer, lambda: _print_schedule(one, coming, past))


def _print_schedule(schedule: Schedule, upcoming: Sequence[int], past: Sequence[ScheduleRun]) -> None:
    what = schedule.definition
    call = decode_arguments(what.job.payload)
    print_fields(
        {
            "schedule": schedule.name,
            "task": what.job.task,
            "arguments": str(call.get("payload_error") or f"{call['args']} {call['kwargs']}"),
            "queue": what.job.queue,
            "when": what.describe_times(),
            "timezone": what.timezone,
            "is": "paused"
            if schedule.is_paused
            else "active"
            if schedule.next_run_at is not None
            else "over",
            "said by": "the code of a program" if what.is_declared else "a call",
            "catch up": f"{what.catch_up}, at most {what.catch_up_limit} of "
            f"{format_duration(what.catch_up_ms)}",
            "overlap": str(what.overlap),
            "jitter": format_duration(what.jitter_ms) or "none",
            "last run": format_instant(schedule.last_run_at),
            "last job": schedule.last_job_id or "",
            "so far": f"{schedule.enqueued_runs} fired, {schedule.skipped_runs} skipped, "
            f"{schedule.failed_runs} failed",
            "changed": format_instant(schedule.updated_at),
        }
    )
    print_table(("next runs",), [(format_instant(at),) for at in upcoming], title="Next runs")
    _print_history(past, title="Last runs")


def _print_history(past: Sequence[ScheduleRun], title: str = "") -> None:
    rows = [
        (
            format_instant(one.planned_at),
            one.status,
            one.runs,
            one.job_id,
            format_instant(one.recorded_at),
            one.reason,
        )
        for one in past
    ]
    print_table(("run", "is", "runs", "job", "recorded", "reason"), rows, title=title)


@schedules.command()
@NAME
@limit_option(100)
@with_store()
def history(session: StoreSession, out: Output, name: str, limit: int) -> None:
    """List what became of the last runs of a schedule, newest first."""
    _require_schedule(session, name)
    past = session.reader.schedule_runs(name, limit=min(limit, 1_000))
    out.print_result({"history": [schedule_run_json(one) for one in past]}, lambda: _print_history(past))


@schedules.command()
@click.option("--window", type=DurationParam(), default="1h", show_default=True, help="In so long until now.")
@with_store()
def missed(session: StoreSession, out: Output, window: int) -> None:
    """Show which share of the runs was skipped or refused lately."""
    reader = session.reader
    since = reader.now() - window
    found = {
        one.name: missed_runs_since(reader.schedule_runs(one.name, limit=MAX_STORED_RUNS), since)
        for one in all_schedules(reader)
    }
    total = add_missed_runs(found.values())
    bad = {name: one for name, one in found.items() if one.missed}
    answer = {
        "since": iso_instant(since),
        **_missed_runs_json(total),
        "schedules": [{"name": name, **_missed_runs_json(one)} for name, one in bad.items()],
    }
    out.print_result(answer, lambda: _print_missed_runs({**bad, "all schedules": total}))


def _missed_runs_json(missed_runs: MissedRuns) -> dict[str, Any]:
    return {**missed_runs._asdict(), "rate": missed_runs.rate}


def _print_missed_runs(found: dict[str, MissedRuns]) -> None:
    rows = [
        (
            name,
            one.runs,
            one.missed,
            "" if one.rate is None else f"{one.rate:.1%}",
            "" if one.is_complete else f"of the last {MAX_STORED_RUNS} lines of a history",
        )
        for name, one in found.items()
    ]
    print_table(("schedule", "runs", "missed", "share", "counted"), rows)


@schedules.command(
    "next", epilog="Example: `forebay schedules next --cron '30 2 * * *' --tz America/New_York`."
)
@click.argument("name", metavar="[SCHEDULE]", required=False)
@RUNS
@_with_timing_options
@url_options
def next_times(
    name: str | None, runs: int, url: str | None, app: str | None, as_json: bool, **given: Any
) -> None:
    """Show when a schedule will run next; or, without one, what a line would mean.

    A line needs no store: it is counted from the time of this machine.
    """
    when = _build_timing_options(given)
    if (name is None) == (not when):
        raise click.UsageError("Name a schedule, or give --cron, --every or --at.")
    if name is None:
        definition, now = _build_trial_definition(when), SystemClock().now_ms()
    else:
        settings = read_settings({"url": url, "app": app}, config=click.get_current_context().find_root().obj)
        with open_session(settings) as desk:
            definition, now = _require_schedule(desk, name).definition, desk.reader.now()
    coming = list(islice(next_runs(definition, now), runs))
    Output(as_json=as_json).print_result(
        {"next_runs": [iso_instant(at) for at in coming]},
        lambda: print_table(
            ("next runs", definition.timezone), [_format_run(definition, at) for at in coming]
        ),
    )


def _format_run(definition: ScheduleDefinition, at: int) -> tuple[str, str]:
    from forebay.domain.time_zone import wall_at, zone_of  # noqa: PLC0415 - most commands need no zone

    wall = wall_at(at // 1_000, zone_of(definition.timezone))
    return format_instant(at), wall.strftime("%a %Y-%m-%d %H:%M:%S")


def _build_trial_definition(options: ScheduleTimingOptions) -> ScheduleDefinition:
    from forebay.app.schedule_options import timing_fields  # noqa: PLC0415 - beside its type, which every command here needs

    return ScheduleDefinition(name="tried", job=NewJob(task="tried"), **timing_fields(options))


@schedules.command()
@NAME
@click.argument("task", type=TaskParam())
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("--args", "args_json", metavar="JSON", help="Positional arguments as a JSON list.")
@click.option("--kwargs", "kwargs_json", metavar="JSON", help="Keyword arguments as a JSON object.")
@click.option("--queue", "-q", type=QueueParam(), help="The queue; the task's own without it.")
@click.option("--priority", type=int, help="-100 to 100; higher runs earlier.")
@_with_timing_options
@with_store(create=True)
def add(
    session: StoreSession,
    out: Output,
    name: str,
    task: str,
    values: tuple[str, ...],
    args_json: str | None,
    kwargs_json: str | None,
    **given: Any,
) -> None:
    """Save a schedule for a task of the app; one of this name gets the new times and arguments.

    VALUES are the arguments of the task, as for `forebay enqueue`.
    """
    args, kwargs = parse_call_arguments(values, args_json, kwargs_json)
    options = cast(CallOptions, {key: given[key] for key in ("queue", "priority") if given[key] is not None})
    saved = _open_schedules(session, needs_app=True).save(
        name, task, args, kwargs, options=options, **_build_timing_options(given)
    )
    _print_change(out, saved, "saved")


@schedules.command()
@NAME
@_with_timing_options
@with_store()
def update(session: StoreSession, out: Output, name: str, **given: Any) -> None:
    """Change when a schedule runs, or what becomes of runs that cannot; other times count from now."""
    when = _build_timing_options(given)
    if not when:
        raise click.UsageError("Say what to change, such as --cron '0 3 * * *'.")
    _print_change(out, _open_schedules(session).update(name, **when), "updated")


@schedules.command()
@NAME
@with_store()
def pause(session: StoreSession, out: Output, name: str) -> None:
    """Enqueue no more jobs of a schedule."""
    _require_schedule(session, name)
    _open_schedules(session).pause(name)
    _print_change(out, _require_schedule(session, name), "paused")


@schedules.command()
@NAME
@with_store()
def resume(session: StoreSession, out: Output, name: str) -> None:
    """Let a paused schedule go on from now; what fell into the pause is not caught up."""
    _require_schedule(session, name)
    _open_schedules(session).resume(name)
    _print_change(out, _require_schedule(session, name), "resumed")


@schedules.command()
@NAME
@with_store()
def fire(session: StoreSession, out: Output, name: str) -> None:
    """Enqueue the job of a schedule now, also of a paused one; its next run stays."""
    handle = _open_schedules(session).fire(name)
    line = (
        f"job {handle.id} enqueued" if handle.is_new else f"job {handle.id} has not ended, so none was made"
    )
    out.print_message({"id": handle.id, "is_new": handle.is_new, "schedule": name}, line)


@schedules.command()
@NAME
@yes_option
@with_store()
def remove(session: StoreSession, out: Output, name: str, yes: bool) -> None:
    """Forget a schedule with its history; the jobs that it made stay."""
    one = _require_schedule(session, name)
    again = (
        " It comes back when a worker starts whose code declares it." if one.definition.is_declared else ""
    )
    confirm(f"Remove schedule {name} from {session.name}?{again}", yes=yes)
    _open_schedules(session).remove(name)
    out.print_message({"removed": name}, f"schedule {name} removed")


@schedules.command()
@yes_option
@with_store(create=True)
def sync(session: StoreSession, out: Output, yes: bool) -> None:
    """Save what the app declares, and remove what no code declares any more.

    For a deploy: workers save what they declare when they start, and remove nothing, because other programs
    may share the store. Schedules that were added by a call stay.
    """
    declared = _load_registry(session, needs_app=True).schedules
    stored = all_schedules(session.reader)
    orphans = [one.name for one in stored if one.definition.is_declared and one.name not in declared]
    if orphans:
        confirm(f"Remove {', '.join(orphans)} from {session.name}? The app does not declare them.", yes=yes)
    saved = save_declared(session.store, session.reader, declared.values(), lambda: 0.0, actor=session.actor)
    for name in orphans:
        _open_schedules(session).remove(name)
    line = f"{saved} saved, {len(orphans)} removed, {len(declared) - saved} as they were"
    out.print_message({"saved": saved, "removed": orphans, "declared": sorted(declared)}, line)


def _print_change(out: Output, schedule: Schedule, past: str) -> None:
    upcoming = (
        "it is paused"
        if schedule.is_paused
        else f"next run {format_instant(schedule.next_run_at) or 'never'}"
    )
    out.print_message(schedule_json(schedule), f"schedule {schedule.name} {past}; {upcoming}")


def _require_schedule(session: StoreSession, name: str) -> Schedule:
    found = session.reader.schedules([name])
    if not found:
        known = [one.name for one in session.reader.schedules()]
        otherwise = "`forebay schedules` shows those there are"
        raise ScheduleNotFound(f"there is no schedule {name}{suggest(name, known, otherwise=otherwise)}")
    return found[0]


def _list_next_runs(session: StoreSession, definition: ScheduleDefinition, runs: int) -> list[int]:
    return list(islice(next_runs(definition, session.reader.now()), runs))


def _open_schedules(session: StoreSession, *, needs_app: bool = False) -> Schedules:
    return Schedules(session.client, _load_registry(session, needs_app=needs_app), actor=session.actor)


def _load_registry(session: StoreSession, *, needs_app: bool) -> Registry:
    """The tasks of the app; none where no command needs them, and nobody's code is loaded."""
    if not needs_app:
        return Registry()
    app = session.settings.get("app")
    if not app:
        raise ConfigError("name the app that has the task, by --app or FOREBAY_APP")
    return load_app(app).registry


def _build_timing_options(given: dict[str, Any]) -> ScheduleTimingOptions:
    """What was given, as options of a schedule."""
    options: dict[str, Any] = {name: given[name] for name in _PLAIN if given[name] is not None}
    options |= {name: timedelta(milliseconds=given[name]) for name in _DURATIONS if given[name] is not None}
    options |= {name: _parse_instant(name, given[name]) for name in _INSTANTS if given[name] is not None}
    return cast(ScheduleTimingOptions, options)


def _parse_instant(name: str, text: str) -> datetime:
    """A time as it is written; without a zone it is meant in that of the schedule."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise ConfigError(
            f"--{name} {text!r} is no time: write 2030-01-31T12:00, perhaps with a zone"
        ) from exc
