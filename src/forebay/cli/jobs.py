"""`forebay jobs`: look at jobs and steer them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from forebay.app.bulk import cancel_matching, purge, revive_matching
from forebay.app.handle import JobHandle
from forebay.app.searching import listed
from forebay.app.story import story
from forebay.cli.acting import Choice, Deed, Tally, act
from forebay.cli.failing import Status
from forebay.cli.filters import Filter, with_filter
from forebay.cli.opening import Desk
from forebay.cli.options import Command, Length, QueueParam, at_store, limit_option, yes_option
from forebay.cli.output import Output, json_line, length, moment, record, table, text
from forebay.cli.shapes import arguments, iso, job_json, result, summary_json, timeline_json
from forebay.cli.tree import edges_json, edges_of, show_edges, tree
from forebay.domain.history import Timeline
from forebay.domain.job import Amendment, Job, JobId, JobSummary, QueueName, check_queue_name
from forebay.domain.lifecycle import LIVE, JobState
from forebay.domain.note import Notes
from forebay.domain.query import JobQuery, Page
from forebay.errors import JobNotFound
from forebay.stores.protocol import Receipt, Verdict
from forebay.stores.reviving import Revival

DELETABLE = frozenset(JobState) - {JobState.RUNNING}
SHOWN_LINES = 20
REVIVABLE = frozenset({JobState.DEAD, JobState.CANCELLED})
# What becomes of a running job that is cancelled: for programs, for people.
ASKED = ("asked", "asked to stop")
TAKEN = ("taken", "taken from the worker and put to the dead letters")
ID = click.argument("job_id", metavar="ID")
IDS = click.argument("ids", metavar="[ID]...", nargs=-1)
ALL = click.option("--all", "everything", is_flag=True, help="All there are; no condition needed.")
DEPENDANTS = click.option(
    "--dependants", is_flag=True, help="With all that depends on them, or ended because of them."
)
AFTER = click.option("--after", metavar="PLACE", help="Go on behind an earlier list.")


@click.group()
def jobs() -> None:
    """List, show, cancel, revive, delete, search and await jobs."""


jobs.add_command(tree)


@jobs.command("list")
@AFTER
@limit_option(50)
@with_filter()
@at_store()
def list_jobs(desk: Desk, out: Output, chosen: Filter, limit: int, after: str | None) -> None:
    """List jobs, newest first."""
    show_list(desk, out, listed(desk.reader, chosen.query(desk), limit, after))


@jobs.command()
@click.argument("words", metavar="TEXT")
@AFTER
@limit_option(50)
@with_filter("text")
@at_store()
def search(desk: Desk, out: Output, chosen: Filter, limit: int, after: str | None, words: str) -> None:
    """List jobs with TEXT in their arguments or reason."""
    if not words:
        raise click.UsageError("Say what to look for.")
    wanted = Filter(given={**chosen.given, "text": words})
    show_list(desk, out, listed(desk.reader, wanted.query(desk), limit, after))


@jobs.command()
@ID
@at_store()
def show(desk: Desk, out: Output, job_id: str) -> None:
    """Show a job and its whole known life."""
    timeline = history_of(desk, job_id)
    show_timeline(desk, out, timeline, {})


@jobs.command()
@IDS
@click.option("--reason", default="cancelled", show_default=True, help="Why; it is kept with the job.")
@click.option("--force", is_flag=True, help="Take running jobs from their workers and bury them.")
@DEPENDANTS
@ALL
@yes_option
@with_filter()
@at_store()
def cancel(desk: Desk, out: Output, reason: str, force: bool, dependants: bool, **which: Any) -> None:
    """Cancel jobs that wait; ask running ones to stop."""
    choice = Choice(**which)
    if force and not choice.ids:
        raise click.UsageError("--force is for jobs that are named by their ids.")
    _check_dependants(choice, dependants)
    act(desk, out, cancelling(desk, reason, force=force, dependants=dependants), choice)


def _check_dependants(choice: Choice, dependants: bool) -> None:
    if dependants and not choice.ids:
        raise click.UsageError("--dependants is for jobs that are named by their ids.")


def cancelling(desk: Desk, reason: str, *, force: bool, dependants: bool = False) -> Deed:
    """The deed that cancels jobs, or asks them to stop, or takes them away."""

    def cancel_ids(ids: Sequence[JobId]) -> list[Verdict]:
        return desk.store.cancel(ids, reason, actor=desk.actor, force=force, dependants=dependants)

    def cancel_all(query: JobQuery, tell: Callable[[int], None]) -> Tally:
        tally = Counter(deed.tally([]))
        cancel_matching(
            desk.store,
            desk.reader,
            query,
            reason=reason,
            actor=desk.actor,
            progress=tell,
            hear=partial(_count, deed, tally),
        )
        return dict(tally)

    deed = Deed(
        verb="cancel",
        past="cancelled",
        allowed=LIVE,
        to_ids=cancel_ids,
        to_all=cancel_all,
        otherwise={JobState.RUNNING: ASKED, JobState.DEAD: TAKEN} if force else {JobState.RUNNING: ASKED},
    )
    return deed


def _count(deed: Deed, tally: Counter[str], verdicts: Sequence[Verdict]) -> None:
    tally.update(deed.tally(verdicts))


def revival_options(func: Command) -> Command:
    """Where and how dead and cancelled jobs come back."""
    for option in (
        click.option("--keep-failures", is_flag=True, help="Do not start again with fresh failures."),
        click.option("--delay", type=Length(), default=0, help="Run them so much later, such as 5m."),
        click.option("--to", "target", type=QueueParam(), help="Into this queue instead of their own."),
    ):
        func = option(func)
    return func


@jobs.command()
@IDS
@revival_options
@DEPENDANTS
@ALL
@yes_option
@with_filter()
@at_store()
def revive(
    desk: Desk,
    out: Output,
    target: str | None,
    delay: int,
    keep_failures: bool,
    dependants: bool,
    **which: Any,
) -> None:
    """Put dead and cancelled jobs back."""
    choice = Choice(**which)
    _check_dependants(choice, dependants)
    deed = revival(desk, REVIVABLE, target, delay, reset=not keep_failures, dependants=dependants)
    act(desk, out, deed, choice)


def revival(
    desk: Desk,
    allowed: frozenset[JobState],
    target: str | None,
    delay: int,
    *,
    reset: bool,
    dependants: bool = False,
    group: str | None = None,
) -> Deed:
    """The deed that puts jobs back."""
    if target is not None:
        check_queue_name(target)
        desk.existing_queue(target)
    to = None if target is None else QueueName(target)
    how = Revival(to, delay, reset, desk.actor, dependants)

    def revive_all(query: JobQuery, tell: Callable[[int], None]) -> Tally:
        tally = Counter(deed.tally([]))
        hear = partial(_count, deed, tally)
        revive_matching(desk.store, desk.reader, query, group=group, how=how, progress=tell, hear=hear)
        return dict(tally)

    deed = Deed(
        verb="revive",
        past="revived",
        allowed=allowed,
        to_ids=lambda ids: desk.store.revive(ids, **how._asdict()),
        to_all=revive_all,
        asks_for_ids=False,  # a job that was put back can be cancelled again
    )
    return deed


@jobs.command()
@IDS
@ALL
@yes_option
@with_filter()
@at_store()
def delete(desk: Desk, out: Output, **which: Any) -> None:
    """Remove jobs that are not running, with their history."""
    act(desk, out, deletion(desk, DELETABLE), Choice(**which))


def deletion(desk: Desk, allowed: frozenset[JobState], group: str | None = None) -> Deed:
    """The deed that removes jobs."""

    def delete_all(query: JobQuery, tell: Callable[[int], None]) -> Tally:
        tally = Counter(deed.tally([]))
        hear = partial(_count, deed, tally)
        purge(desk.store, desk.reader, query, group=group, actor=desk.actor, progress=tell, hear=hear)
        return dict(tally)

    deed = Deed(
        verb="delete",
        past="deleted",
        allowed=allowed,
        to_ids=lambda ids: desk.store.delete(ids, actor=desk.actor),
        to_all=delete_all,
    )
    return deed


@jobs.command()
@ID
@click.option("--priority", type=int, help="Its new priority.")
@click.option(
    "--delay", type=Length(), help="Run it so much later from now, such as 5m; 0 makes it pending now."
)
@click.option("--to", "target", type=QueueParam(), help="Into this queue instead of its own.")
@at_store()
def amend(
    desk: Desk, out: Output, job_id: str, priority: int | None, delay: int | None, target: str | None
) -> None:
    """Change the priority, the time or the queue of a job that waits."""
    if priority is None and delay is None and target is None:
        raise click.UsageError("Say what to change: --priority, --delay or --to.")
    if target is not None:
        desk.existing_queue(target)
    to = None if target is None else QueueName(target)
    change = Amendment(priority=priority, delay_ms=delay, queue=to)
    verdict = desk.store.amend(JobId(job_id), change, actor=desk.actor)
    verdict.check()
    out.say(
        {"id": job_id, "amended": True, "state": verdict.state},
        f"job {job_id} amended; it is {verdict.state}",
    )


@jobs.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=Length(), help="Give up after this long, such as 30s; never without it.")
@at_store()
def wait(desk: Desk, out: Output, ids: tuple[str, ...], timeout: int | None) -> None:
    """Wait until jobs have ended, and show what they returned.

    The status is 0 if all of them completed, 1 if one is dead or cancelled, 6 if the time is over.
    """
    ends = None if timeout is None else time.monotonic() + timeout / 1_000
    ended = [_awaited(desk, job_id, ends) for job_id in dict.fromkeys(ids)]
    out.answer([job_json(job) for job in ended], lambda: _show_ended(ended))
    if any(job.state is not JobState.COMPLETED for job in ended):
        click.get_current_context().exit(Status.BAD_ANSWER)


def _awaited(desk: Desk, job_id: str, ends: float | None) -> Job:
    handle = JobHandle[Any](desk.client, Receipt(id=JobId(job_id), is_new=False))
    return handle.wait(None if ends is None else max(0.0, ends - time.monotonic()))


def _show_ended(ended: Sequence[Job]) -> None:
    rows = [(job.id, job.task, job.state, job.reason or _json(result(job.result)["result"])) for job in ended]
    table(("id", "task", "state", "result"), rows)


def _json(value: Any) -> str:
    """A stored value as it is stored; nothing for one that is not there."""
    return "" if value is None else json_line(value)


def history_of(desk: Desk, job_id: str) -> Timeline:
    """All that is known of a job; raises JobNotFound."""
    timeline = desk.reader.history(JobId(job_id))
    if timeline is None:
        raise JobNotFound(f"there is no job {job_id}; it may have been pruned")
    return timeline


def show_list(desk: Desk, out: Output, page: Page, **more: Any) -> None:
    """A page of jobs, and how to go on."""
    now = desk.reader.now()
    answer = {"jobs": [summary_json(job) for job in page.jobs], "after": page.after, **more}
    if page.stopped_at is not None:
        answer["stopped_at"] = iso(page.stopped_at)

    def people() -> None:
        table(("id", "queue", "task", "state", "prio", "try", "age", "reason"), _rows(page.jobs, now))
        if page.stopped_at is not None:
            click.echo(
                f"Looked no further back than {moment(page.stopped_at)}; go on with --after {page.after}"
            )
        elif page.after is not None:
            click.echo(f"There may be more: --after {page.after}")

    out.answer(answer, people)


def _rows(found: Sequence[JobSummary], now: int) -> list[tuple[object, ...]]:
    return [
        (
            job.id,
            job.queue,
            job.task,
            job.state,
            job.priority,
            job.attempt,
            length(max(0, now - job.created_at)),
            job.reason,
        )
        for job in found
    ]


def show_timeline(desk: Desk, out: Output, timeline: Timeline, more: dict[str, int | None]) -> None:
    """A job with its life; the instants in `more` are added to what is known of it."""
    position = desk.reader.position(timeline.job.id)
    place = None if position is None else {"ahead": position.ahead, "is_exact": position.is_exact}

    first = _waits_for(desk, timeline.job)
    instants = {name: iso(at) for name, at in more.items()}
    told = {name.removesuffix("_at").replace("_", " "): moment(at) for name, at in more.items()}

    def people() -> None:
        progress = {"progress": _progress(timeline.notes)}
        ahead = {"waits for": first, "ahead of it": place and place["ahead"]}
        record({**_facts(timeline.job), **progress, **ahead, **told})
        show_edges(edges)
        table(
            ("when", "what", "detail"),
            [(moment(at), what, detail) for at, what, detail in story(timeline)],
            title="Timeline",
        )
        _show_notes(timeline.notes)
        for attempt in timeline.attempts:
            if attempt.error.traceback:
                click.echo(f"\nAttempt {attempt.attempt}:\n{text(attempt.error.traceback).rstrip()}")

    edges = edges_of(desk.reader, timeline.job.id)
    answer = {**timeline_json(timeline), "position": place, "waits_for": first}
    out.answer({**answer, **instants, **edges_json(edges)}, people)


def _waits_for(desk: Desk, job: Job) -> JobId | None:
    """Whose turn it is in the sequence of a blocked job; what else it waits for are its parents."""
    if job.state is not JobState.BLOCKED or job.sequence is None:
        return None
    first = desk.reader.first_in_sequence(job.sequence)
    return None if first == job.id else first


def _progress(notes: Notes) -> str | None:
    said = notes.progress
    if said is None:
        return None
    done = f"{said.done:,g}" if said.total is None else f"{said.done:,g} of {said.total:,g}"
    return f"{done} {said.message}".strip() + f" (attempt {said.attempt}, {moment(said.at)})"


def _show_notes(notes: Notes) -> None:
    if notes.steps:
        steps = [(moment(step.at), step.name, step.attempt) for step in notes.steps]
        table(("when", "step", "attempt"), steps, title="Steps done")
    if notes.lines:
        lines = [(moment(line.at), line.attempt, line.level, line.text) for line in notes.lines]
        table(("when", "attempt", "level", "text"), lines[-SHOWN_LINES:], title="Log")


def _retries(count: int) -> str:
    return "1 retry" if count == 1 else f"{count} retries"


def _facts(job: Job) -> dict[str, object]:
    call = arguments(job.payload)
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "reason": job.reason,
        "priority": job.priority,
        "args": call["args"] and _json(call["args"]),
        "kwargs": call["kwargs"] and _json(call["kwargs"]),
        "payload": call.get("payload_error"),
        "result": _json(result(job.result)["result"]),
        "attempt": job.attempt,
        "run number": job.run_number,
        "failures": f"{job.failures} ({_retries(job.policy.max_retries)} allowed)",
        "crashes": job.crashes or None,
        "created": moment(job.created_at),
        "due": moment(job.run_at),
        "started": moment(job.started_at),
        "ended": moment(job.finished_at),
        "lease until": moment(job.lease_expires_at),
        "worker": job.worker,
        "timeout": length(job.timeout_ms),
        "unique key": job.unique_key,
        "once key": job.once_key,
        "sequence": job.sequence,
        "correlation id": job.correlation_id,
        "parent": job.parent_id,
        "tags": ", ".join(job.tags),
        "metadata": job.metadata and _json(job.metadata),
        "asked to stop": job.cancel_reason,
    }
