"""`forebay schedules`: look at schedules, save them, pause, fire and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, cast

import click

from forebay.app.options import CallOptions
from forebay.app.planning import WhenOptions
from forebay.app.registry import Registry
from forebay.app.schedules import Schedules, all_schedules, declare
from forebay.cli.enqueue import call_arguments
from forebay.cli.guessing import perhaps
from forebay.cli.loading import load_app
from forebay.cli.opening import Desk, opened
from forebay.cli.options import (
    Command,
    Length,
    QueueParam,
    TaskParam,
    at_store,
    limit_option,
    url_options,
    yes_option,
)
from forebay.cli.output import Output, confirm, length, moment, record, table
from forebay.cli.settings import read_settings
from forebay.cli.shapes import arguments, firing_json, iso, schedule_json
from forebay.cli.workers import ListByDefault
from forebay.clock import SystemClock
from forebay.domain.firing import next_runs
from forebay.domain.job import NewJob
from forebay.domain.schedule import (
    FIRINGS_KEPT,
    CatchUp,
    Definition,
    Firing,
    Misses,
    Overlap,
    Schedule,
    added_misses,
    misses_since,
)
from forebay.errors import ConfigError, ScheduleNotFound

NAME = click.argument("name", metavar="SCHEDULE")
RUNS = click.option(
    "--runs", "-r", type=click.IntRange(1, 1_000), default=5, show_default=True, help="How many next runs."
)
# Options of the commands that are options of a schedule as they are, and those that are lengths or times.
_PLAIN: Final = ("cron", "timezone", "catch_up", "catch_up_most", "overlap", "unique", "max_firings")
_LENGTHS: Final = ("every", "jitter", "catch_up_within", "unique_for")
_INSTANTS: Final = ("at", "start", "end")

WHEN: Final = (
    click.option("--cron", metavar="LINE", help='Five fields, or six with seconds first: "0 2 * * *".'),
    click.option("--every", type=Length(), help="An interval, such as 5m; it counts from --start or 1970."),
    click.option("--at", metavar="TIME", help="Once, at this time: 2030-01-31T12:00."),
    click.option("--timezone", "--tz", metavar="ZONE", help="Such as Europe/Berlin; UTC without it."),
    click.option("--start", metavar="TIME", help="No run before this time."),
    click.option("--end", metavar="TIME", help="No run after this time."),
    click.option("--jitter", type=Length(), help="Fire up to so much later, by chance."),
    click.option(
        "--catch-up",
        type=click.Choice([one.value for one in CatchUp]),
        help="For runs that nobody was there to fire.",
    ),
    click.option("--catch-up-most", type=int, help="With --catch-up all: at most this many; 10 without it."),
    click.option("--catch-up-within", type=Length(), help="None that are older; a day without it."),
    click.option(
        "--overlap",
        type=click.Choice([one.value for one in Overlap]),
        help="While the job before has not ended.",
    ),
    click.option("--unique", metavar="KEY", help="At most one job with this key in --unique-for."),
    click.option("--unique-for", type=Length(), help="How long that key is held; 5m without it."),
    click.option("--max-firings", type=int, help="End after so many jobs."),
)


def _when_options(func: Command) -> Command:
    for option in reversed(WHEN):
        func = option(func)
    return func


@click.group(
    cls=ListByDefault,
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
@at_store()
def list_schedules(desk: Desk, out: Output, enabled: bool, task: str | None) -> None:
    """List the schedules. This is what `forebay schedules` alone does."""
    found = _schedules(desk).list(enabled_only=enabled, task=task)
    out.answer({"schedules": [schedule_json(one) for one in found]}, lambda: _table(found))


def _table(found: Sequence[Schedule]) -> None:
    rows = [
        (
            one.name,
            one.definition.job.task,
            one.definition.when(),
            "paused" if one.is_paused else moment(one.next_at) or "over",
            moment(one.last_at),
            one.fired,
            one.skipped,
            one.failed,
        )
        for one in found
    ]
    table(("schedule", "task", "when", "next", "last", "fired", "skipped", "failed"), rows)


@schedules.command()
@NAME
@RUNS
@limit_option(10)
@at_store()
def show(desk: Desk, out: Output, name: str, runs: int, limit: int) -> None:
    """Show one schedule, its next runs and what became of the last ones."""
    one = _existing(desk, name)
    coming = _coming(desk, one.definition, runs)
    past = desk.reader.firings(name, limit=min(limit, 1_000))
    answer = {
        **schedule_json(one),
        **arguments(one.definition.job.payload),
        "next_runs": [iso(at) for at in coming],
        "history": [firing_json(firing) for firing in past],
    }
    out.answer(answer, lambda: _show(one, coming, past))


def _show(one: Schedule, coming: Sequence[int], past: Sequence[Firing]) -> None:
    what = one.definition
    call = arguments(what.job.payload)
    record(
        {
            "schedule": one.name,
            "task": what.job.task,
            "arguments": str(call.get("payload_error") or f"{call['args']} {call['kwargs']}"),
            "queue": what.job.queue,
            "when": what.when(),
            "timezone": what.timezone,
            "is": "paused" if one.is_paused else "active" if one.next_at is not None else "over",
            "said by": "the code of a program" if what.is_declared else "a call",
            "catch up": f"{what.catch_up}, at most {what.catch_up_most} of {length(what.catch_up_ms)}",
            "overlap": str(what.overlap),
            "jitter": length(what.jitter_ms) or "none",
            "last run": moment(one.last_at),
            "last job": one.last_job_id or "",
            "so far": f"{one.fired} fired, {one.skipped} skipped, {one.failed} failed",
            "changed": moment(one.updated_at),
        }
    )
    table(("next runs",), [(moment(at),) for at in coming], title="Next runs")
    _history_table(past, title="Last runs")


def _history_table(past: Sequence[Firing], title: str = "") -> None:
    rows = [
        (moment(one.at), one.status, one.count, one.job_id, moment(one.recorded_at), one.reason)
        for one in past
    ]
    table(("run", "is", "runs", "job", "recorded", "reason"), rows, title=title)


@schedules.command()
@NAME
@limit_option(100)
@at_store()
def history(desk: Desk, out: Output, name: str, limit: int) -> None:
    """List what became of the last runs of a schedule, newest first."""
    _existing(desk, name)
    past = desk.reader.firings(name, limit=min(limit, 1_000))
    out.answer({"history": [firing_json(one) for one in past]}, lambda: _history_table(past))


@schedules.command()
@click.option("--window", type=Length(), default="1h", show_default=True, help="In so long until now.")
@at_store()
def missed(desk: Desk, out: Output, window: int) -> None:
    """Show which share of the runs was skipped or refused lately."""
    reader = desk.reader
    since = reader.now() - window
    found = {
        one.name: misses_since(reader.firings(one.name, limit=FIRINGS_KEPT), since)
        for one in all_schedules(reader)
    }
    total = added_misses(found.values())
    bad = {name: one for name, one in found.items() if one.missed}
    answer = {
        "since": iso(since),
        **_misses_json(total),
        "schedules": [{"name": name, **_misses_json(one)} for name, one in bad.items()],
    }
    out.answer(answer, lambda: _misses_table({**bad, "all schedules": total}))


def _misses_json(one: Misses) -> dict[str, Any]:
    return {**one._asdict(), "rate": one.rate}


def _misses_table(found: dict[str, Misses]) -> None:
    rows = [
        (
            name,
            one.runs,
            one.missed,
            "" if one.rate is None else f"{one.rate:.1%}",
            "" if one.is_whole else f"of the last {FIRINGS_KEPT} lines of a history",
        )
        for name, one in found.items()
    ]
    table(("schedule", "runs", "missed", "share", "counted"), rows)


@schedules.command(
    "next", epilog="Example: `forebay schedules next --cron '30 2 * * *' --tz America/New_York`."
)
@click.argument("name", metavar="[SCHEDULE]", required=False)
@RUNS
@_when_options
@url_options
def next_times(
    name: str | None, runs: int, url: str | None, app: str | None, as_json: bool, **given: Any
) -> None:
    """Show when a schedule will run next; or, without one, what a line would mean.

    A line needs no store: it is counted from the time of this machine.
    """
    when = _when(given)
    if (name is None) == (not when):
        raise click.UsageError("Name a schedule, or give --cron, --every or --at.")
    if name is None:
        definition, now = _tried(when), SystemClock().now_ms()
    else:
        settings = read_settings({"url": url, "app": app}, config=click.get_current_context().find_root().obj)
        with opened(settings) as desk:
            definition, now = _existing(desk, name).definition, desk.reader.now()
    coming = list(islice(next_runs(definition, now), runs))
    Output(as_json=as_json).answer(
        {"next_runs": [iso(at) for at in coming]},
        lambda: table(("next runs", definition.timezone), [_both(definition, at) for at in coming]),
    )


def _both(definition: Definition, at: int) -> tuple[str, str]:
    from forebay.domain.zone import wall_at, zone_of  # noqa: PLC0415 - most commands need no zone

    wall = wall_at(at // 1_000, zone_of(definition.timezone))
    return moment(at), wall.strftime("%a %Y-%m-%d %H:%M:%S")


def _tried(when: WhenOptions) -> Definition:
    from forebay.app.planning import times  # noqa: PLC0415 - beside its type, which every command here needs

    return Definition(name="tried", job=NewJob(task="tried"), **times(when))


@schedules.command()
@NAME
@click.argument("task", type=TaskParam())
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("--args", "args_json", metavar="JSON", help="Positional arguments as a JSON list.")
@click.option("--kwargs", "kwargs_json", metavar="JSON", help="Keyword arguments as a JSON object.")
@click.option("--queue", "-q", type=QueueParam(), help="The queue; the task's own without it.")
@click.option("--priority", type=int, help="-100 to 100; higher runs earlier.")
@_when_options
@at_store(create=True)
def add(
    desk: Desk,
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
    args, kwargs = call_arguments(values, args_json, kwargs_json)
    options = cast(CallOptions, {key: given[key] for key in ("queue", "priority") if given[key] is not None})
    saved = _schedules(desk, needs_app=True).save(name, task, args, kwargs, options=options, **_when(given))
    _said(out, saved, "saved")


@schedules.command()
@NAME
@_when_options
@at_store()
def update(desk: Desk, out: Output, name: str, **given: Any) -> None:
    """Change when a schedule runs, or what becomes of runs that cannot; other times count from now."""
    when = _when(given)
    if not when:
        raise click.UsageError("Say what to change, such as --cron '0 3 * * *'.")
    _said(out, _schedules(desk).update(name, **when), "updated")


@schedules.command()
@NAME
@at_store()
def pause(desk: Desk, out: Output, name: str) -> None:
    """Enqueue no more jobs of a schedule."""
    _existing(desk, name)
    _schedules(desk).pause(name)
    _said(out, _existing(desk, name), "paused")


@schedules.command()
@NAME
@at_store()
def resume(desk: Desk, out: Output, name: str) -> None:
    """Let a paused schedule go on from now; what fell into the pause is not caught up."""
    _existing(desk, name)
    _schedules(desk).resume(name)
    _said(out, _existing(desk, name), "resumed")


@schedules.command()
@NAME
@at_store()
def fire(desk: Desk, out: Output, name: str) -> None:
    """Enqueue the job of a schedule now, also of a paused one; its next run stays."""
    handle = _schedules(desk).fire(name)
    line = (
        f"job {handle.id} enqueued" if handle.is_new else f"job {handle.id} has not ended, so none was made"
    )
    out.say({"id": handle.id, "is_new": handle.is_new, "schedule": name}, line)


@schedules.command()
@NAME
@yes_option
@at_store()
def remove(desk: Desk, out: Output, name: str, yes: bool) -> None:
    """Forget a schedule with its history; the jobs that it made stay."""
    one = _existing(desk, name)
    again = (
        " It comes back when a worker starts whose code declares it." if one.definition.is_declared else ""
    )
    confirm(f"Remove schedule {name} from {desk.name}?{again}", yes=yes)
    _schedules(desk).remove(name)
    out.say({"removed": name}, f"schedule {name} removed")


@schedules.command()
@yes_option
@at_store(create=True)
def sync(desk: Desk, out: Output, yes: bool) -> None:
    """Save what the app declares, and remove what no code declares any more.

    For a deploy: workers save what they declare when they start, and remove nothing, because other programs
    may share the store. Schedules that were added by a call stay.
    """
    declared = _registry(desk, needs_app=True).schedules
    stored = all_schedules(desk.reader)
    orphans = [one.name for one in stored if one.definition.is_declared and one.name not in declared]
    if orphans:
        confirm(f"Remove {', '.join(orphans)} from {desk.name}? The app does not declare them.", yes=yes)
    saved = declare(desk.store, desk.reader, declared.values(), lambda: 0.0, actor=desk.actor)
    for name in orphans:
        _schedules(desk).remove(name)
    line = f"{saved} saved, {len(orphans)} removed, {len(declared) - saved} as they were"
    out.say({"saved": saved, "removed": orphans, "declared": sorted(declared)}, line)


def _said(out: Output, one: Schedule, past: str) -> None:
    upcoming = "it is paused" if one.is_paused else f"next run {moment(one.next_at) or 'never'}"
    out.say(schedule_json(one), f"schedule {one.name} {past}; {upcoming}")


def _existing(desk: Desk, name: str) -> Schedule:
    found = desk.reader.schedules([name])
    if not found:
        known = [one.name for one in desk.reader.schedules()]
        otherwise = "`forebay schedules` shows those there are"
        raise ScheduleNotFound(f"there is no schedule {name}{perhaps(name, known, otherwise=otherwise)}")
    return found[0]


def _coming(desk: Desk, definition: Definition, runs: int) -> list[int]:
    return list(islice(next_runs(definition, desk.reader.now()), runs))


def _schedules(desk: Desk, *, needs_app: bool = False) -> Schedules:
    return Schedules(desk.client, _registry(desk, needs_app=needs_app), actor=desk.actor)


def _registry(desk: Desk, *, needs_app: bool) -> Registry:
    """The tasks of the app; none where no command needs them, and nobody's code is loaded."""
    if not needs_app:
        return Registry()
    app = desk.settings.get("app")
    if not app:
        raise ConfigError("name the app that has the task, by --app or FOREBAY_APP")
    return load_app(app).registry


def _when(given: dict[str, Any]) -> WhenOptions:
    """What was given, as options of a schedule."""
    options: dict[str, Any] = {name: given[name] for name in _PLAIN if given[name] is not None}
    options |= {name: timedelta(milliseconds=given[name]) for name in _LENGTHS if given[name] is not None}
    options |= {name: _instant(name, given[name]) for name in _INSTANTS if given[name] is not None}
    return cast(WhenOptions, options)


def _instant(name: str, text: str) -> datetime:
    """A time as it is written; without a zone it is meant in that of the schedule."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise ConfigError(
            f"--{name} {text!r} is no time: write 2030-01-31T12:00, perhaps with a zone"
        ) from exc
