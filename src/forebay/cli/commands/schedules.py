"""`forebay schedules`: list, show, save, pause, fire and remove schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, cast

import click

from forebay.app.job_options import CallOptions
from forebay.app.registry import Registry
from forebay.app.schedule_options import ScheduleTimingOptions
from forebay.app.schedules import Schedules, all_schedules, save_declared
from forebay.cli.app_loader import load_app
from forebay.cli.commands.enqueue import parse_call_arguments
from forebay.cli.commands.worker_admin import DefaultListGroup
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
# Options that are passed on as schedule options: as they are, as durations, as instants.
_PLAIN: Final = ("cron", "timezone", "catch_up", "catch_up_limit", "overlap", "unique_key", "max_runs")
_DURATIONS: Final = ("every", "jitter", "catch_up_within", "unique_for")
_INSTANTS: Final = ("at", "start", "end")

TIMING_OPTIONS: Final = (
    click.option("--cron", metavar="LINE", help='Five fields, or six with seconds first: "0 2 * * *".'),
    click.option(
        "--every", type=DurationParam(), help="An interval, such as 5m, counted from --start or 1970."
    ),
    click.option("--at", metavar="TIME", help="Once, at this time: 2030-01-31T12:00."),
    click.option("--timezone", "--tz", metavar="ZONE", help="Such as Europe/Berlin; default: UTC."),
    click.option("--start", metavar="TIME", help="No run before this time."),
    click.option("--end", metavar="TIME", help="No run after this time."),
    click.option("--jitter", type=DurationParam(), help="Delay each run by a random time, at most this."),
    click.option(
        "--catch-up",
        type=click.Choice([choice.value for choice in CatchUp]),
        help="Which runs to make up for that were missed.",
    ),
    click.option(
        "--catch-up-limit", type=int, help="With --catch-up all: at most this many runs; default: 10."
    ),
    click.option(
        "--catch-up-within", type=DurationParam(), help="Skip missed runs that are older; default: a day."
    ),
    click.option(
        "--overlap",
        type=click.Choice([choice.value for choice in Overlap]),
        help="What to do while the previous job has not ended.",
    ),
    click.option("--unique-key", metavar="KEY", help="At most one job with this key in --unique-for."),
    click.option("--unique-for", type=DurationParam(), help="How long that key is held; default: 5m."),
    click.option("--max-runs", type=int, help="End after this many runs."),
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

    Workers fire schedules; a separate program is not needed. Without a command the schedules are listed.
    """


@schedules.command("list")
@click.option("--enabled", is_flag=True, help="Leave out paused schedules.")
@click.option("--task", help="Schedules of this task only.")
@with_store()
def list_schedules(session: StoreSession, out: Output, enabled: bool, task: str | None) -> None:
    """List the schedules. This is what `forebay schedules` alone does."""
    found = _open_schedules(session).list(enabled_only=enabled, task=task)
    out.print_result(
        {"schedules": [schedule_json(schedule) for schedule in found]}, lambda: _print_schedules(found)
    )


def _print_schedules(found: Sequence[Schedule]) -> None:
    rows = [
        (
            schedule.name,
            schedule.definition.job.task,
            schedule.definition.describe_times(),
            "paused" if schedule.is_paused else format_instant(schedule.next_run_at) or "over",
            format_instant(schedule.last_run_at),
            schedule.enqueued_runs,
            schedule.skipped_runs,
            schedule.failed_runs,
        )
        for schedule in found
    ]
    print_table(("schedule", "task", "when", "next", "last", "fired", "skipped", "failed"), rows)


@schedules.command()
@NAME
@RUNS
@limit_option(10)
@with_store()
def show(session: StoreSession, out: Output, name: str, runs: int, limit: int) -> None:
    """Show one schedule with its next and last runs."""
    schedule = _require_schedule(session, name)
    upcoming = _list_next_runs(session, schedule.definition, runs)
    past = session.reader.schedule_runs(name, limit=min(limit, 1_000))
    answer = {
        **schedule_json(schedule),
        **decode_arguments(schedule.definition.job.payload),
        "next_runs": [iso_instant(at) for at in upcoming],
        "history": [schedule_run_json(run) for run in past],
    }
    out.print_result(answer, lambda: _print_schedule(schedule, upcoming, past))


def _print_schedule(schedule: Schedule, upcoming: Sequence[int], past: Sequence[ScheduleRun]) -> None:
    definition = schedule.definition
    call = decode_arguments(definition.job.payload)
    print_fields(
        {
            "schedule": schedule.name,
            "task": definition.job.task,
            "arguments": str(call.get("payload_error") or f"{call['args']} {call['kwargs']}"),
            "queue": definition.job.queue,
            "when": definition.describe_times(),
            "timezone": definition.timezone,
            "state": "paused"
            if schedule.is_paused
            else "active"
            if schedule.next_run_at is not None
            else "over",
            "saved by": "an app that declares it" if definition.is_declared else "a call",
            "catch up": f"{definition.catch_up}, at most {definition.catch_up_limit} of "
            f"{format_duration(definition.catch_up_ms)}",
            "overlap": str(definition.overlap),
            "jitter": format_duration(definition.jitter_ms) or "none",
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
            format_instant(run.planned_at),
            run.status,
            run.runs,
            run.job_id,
            format_instant(run.recorded_at),
            run.reason,
        )
        for run in past
    ]
    print_table(("run", "status", "runs", "job", "recorded", "reason"), rows, title=title)


@schedules.command()
@NAME
@limit_option(100)
@with_store()
def history(session: StoreSession, out: Output, name: str, limit: int) -> None:
    """List the last runs of a schedule, newest first."""
    _require_schedule(session, name)
    past = session.reader.schedule_runs(name, limit=min(limit, 1_000))
    out.print_result({"history": [schedule_run_json(run) for run in past]}, lambda: _print_history(past))


@schedules.command()
@click.option(
    "--window", type=DurationParam(), default="1h", show_default=True, help="Length of the window until now."
)
@with_store()
def missed(session: StoreSession, out: Output, window: int) -> None:
    """Show the share of recent runs that were skipped or refused."""
    reader = session.reader
    since = reader.now() - window
    found = {
        schedule.name: missed_runs_since(reader.schedule_runs(schedule.name, limit=MAX_STORED_RUNS), since)
        for schedule in all_schedules(reader)
    }
    total = add_missed_runs(found.values())
    bad = {name: missed_runs for name, missed_runs in found.items() if missed_runs.missed}
    answer = {
        "since": iso_instant(since),
        **_missed_runs_json(total),
        "schedules": [{"name": name, **_missed_runs_json(missed_runs)} for name, missed_runs in bad.items()],
    }
    out.print_result(answer, lambda: _print_missed_runs({**bad, "all schedules": total}))


def _missed_runs_json(missed_runs: MissedRuns) -> dict[str, Any]:
    return {**missed_runs._asdict(), "rate": missed_runs.rate}


def _print_missed_runs(found: dict[str, MissedRuns]) -> None:
    rows = [
        (
            name,
            missed_runs.runs,
            missed_runs.missed,
            "" if missed_runs.rate is None else f"{missed_runs.rate:.1%}",
            "" if missed_runs.is_complete else f"of the last {MAX_STORED_RUNS} entries of the history",
        )
        for name, missed_runs in found.items()
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
    """Show the next runs of a schedule, or of --cron, --every or --at.

    Without a schedule no store is needed: the times are counted from the clock of this machine.
    """
    when = _build_timing_options(given)
    if (name is None) == (not when):
        raise click.UsageError("Name a schedule, or give --cron, --every or --at.")
    if name is None:
        definition, now = _build_trial_definition(when), SystemClock().now_ms()
    else:
        settings = read_settings({"url": url, "app": app}, config=click.get_current_context().find_root().obj)
        with open_session(settings) as session:
            definition, now = _require_schedule(session, name).definition, session.reader.now()
    upcoming = list(islice(next_runs(definition, now), runs))
    Output(as_json=as_json).print_result(
        {"next_runs": [iso_instant(at) for at in upcoming]},
        lambda: print_table(
            ("next runs", definition.timezone), [_format_run(definition, at) for at in upcoming]
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
@click.option("--queue", "-q", type=QueueParam(), help="The queue; default: that of the task.")
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
    """Save a schedule for a task of the app; an existing one gets the new times and arguments.

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
    """Change the times of a schedule, or how it treats missed runs. New times count from now."""
    when = _build_timing_options(given)
    if not when:
        raise click.UsageError("Give a change, such as --cron '0 3 * * *'.")
    _print_change(out, _open_schedules(session).update(name, **when), "updated")


@schedules.command()
@NAME
@with_store()
def pause(session: StoreSession, out: Output, name: str) -> None:
    """Pause a schedule; it enqueues no jobs."""
    _require_schedule(session, name)
    _open_schedules(session).pause(name)
    _print_change(out, _require_schedule(session, name), "paused")


@schedules.command()
@NAME
@with_store()
def resume(session: StoreSession, out: Output, name: str) -> None:
    """Resume a paused schedule from now; runs during the pause are not made up for."""
    _require_schedule(session, name)
    _open_schedules(session).resume(name)
    _print_change(out, _require_schedule(session, name), "resumed")


@schedules.command()
@NAME
@with_store()
def fire(session: StoreSession, out: Output, name: str) -> None:
    """Enqueue the job of a schedule now, even if it is paused; its next run stays."""
    handle = _open_schedules(session).fire(name)
    line = (
        f"job {handle.id} enqueued"
        if handle.is_new
        else f"job {handle.id} has not ended, so no job was enqueued"
    )
    out.print_message({"id": handle.id, "is_new": handle.is_new, "schedule": name}, line)


@schedules.command()
@NAME
@yes_option
@with_store()
def remove(session: StoreSession, out: Output, name: str, yes: bool) -> None:
    """Remove a schedule with its history; its jobs stay."""
    schedule = _require_schedule(session, name)
    again = (
        " It comes back when a worker starts whose app declares it."
        if schedule.definition.is_declared
        else ""
    )
    confirm(f"Remove schedule {name} from {session.name}?{again}", yes=yes)
    _open_schedules(session).remove(name)
    out.print_message({"removed": name}, f"schedule {name} removed")


@schedules.command()
@yes_option
@with_store(create=True)
def sync(session: StoreSession, out: Output, yes: bool) -> None:
    """Save the schedules that the app declares, and remove those it no longer declares.

    For a deploy: workers save their schedules when they start, and remove none, because other programs may
    share the store. Schedules that were saved by a call stay.
    """
    declared = _load_registry(session, needs_app=True).schedules
    stored = all_schedules(session.reader)
    orphans = [
        schedule.name
        for schedule in stored
        if schedule.definition.is_declared and schedule.name not in declared
    ]
    if orphans:
        confirm(f"Remove {', '.join(orphans)} from {session.name}? The app does not declare them.", yes=yes)
    saved = save_declared(session.store, session.reader, declared.values(), lambda: 0.0, actor=session.actor)
    for name in orphans:
        _open_schedules(session).remove(name)
    line = f"{saved} saved, {len(orphans)} removed, {len(declared) - saved} unchanged"
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
        known = [schedule.name for schedule in session.reader.schedules()]
        otherwise = "`forebay schedules` lists the schedules"
        raise ScheduleNotFound(f"there is no schedule {name}{suggest(name, known, otherwise=otherwise)}")
    return found[0]


def _list_next_runs(session: StoreSession, definition: ScheduleDefinition, runs: int) -> list[int]:
    return list(islice(next_runs(definition, session.reader.now()), runs))


def _open_schedules(session: StoreSession, *, needs_app: bool = False) -> Schedules:
    return Schedules(session.client, _load_registry(session, needs_app=needs_app), actor=session.actor)


def _load_registry(session: StoreSession, *, needs_app: bool) -> Registry:
    """Return the tasks of the app; no app is imported for a command that needs none."""
    if not needs_app:
        return Registry()
    app = session.settings.get("app")
    if not app:
        raise ConfigError("name the app that has the task, by --app or FOREBAY_APP")
    return load_app(app).registry


def _build_timing_options(given: dict[str, Any]) -> ScheduleTimingOptions:
    """Return the given options as schedule options."""
    options: dict[str, Any] = {name: given[name] for name in _PLAIN if given[name] is not None}
    options |= {name: timedelta(milliseconds=given[name]) for name in _DURATIONS if given[name] is not None}
    options |= {name: _parse_instant(name, given[name]) for name in _INSTANTS if given[name] is not None}
    return cast(ScheduleTimingOptions, options)


def _parse_instant(name: str, text: str) -> datetime:
    """Parse a time; without a zone it is in the zone of the schedule."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise ConfigError(
            f"--{name} {text!r} is not a time: write 2030-01-31T12:00, with a zone if needed"
        ) from exc
