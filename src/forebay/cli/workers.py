"""`forebay workers`: look at workers and steer them through the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from forebay.cli.failing import Status
from forebay.cli.opening import Desk
from forebay.cli.options import Command as Func
from forebay.cli.options import QueueParam, at_store, yes_option
from forebay.cli.output import Output, confirm, length, moment, record, table, text
from forebay.cli.shapes import worker_json
from forebay.cli.stats import worker_table
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import COMMAND_EXPIRES_MS, Command, CommandKind, Pulse, WorkerInfo
from forebay.errors import ConfigError, WorkerNotFound

_LOOK_SECONDS: Final = 0.1
# An id shows when its worker was started; the beginning that two have in common says nothing about them.
_SHORTEST: Final = 4
_MEGABYTE: Final = 1_048_576


class ListByDefault(click.Group):
    """`forebay workers` alone is `forebay workers list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=ListByDefault,
    epilog="Examples: `forebay workers`, `forebay workers pause 01KXY --queue mail`, "
    "`forebay workers stop --all --yes`, `forebay workers stacks 01KXY`.",
)
def workers() -> None:
    """List workers, look into them, pause, resume and stop them.

    An id may be shortened as long as it names one worker. What is asked of a worker goes through the store:
    it hears within a second, wherever it runs, and what it has not heard after 30 s counts no more.
    """


@workers.command("list")
@at_store()
def list_workers(desk: Desk, out: Output) -> None:
    """List the workers with their state. This is what `forebay workers` alone does."""
    now, found = desk.reader.now(), desk.reader.workers()
    out.answer({"workers": [worker_json(one, now) for one in found]}, lambda: worker_table(found, now))


@workers.command()
@click.argument("worker", metavar="ID")
@at_store()
def show(desk: Desk, out: Output, worker: str) -> None:
    """Show all that is known of one worker, with the jobs that wait for it."""
    now, [one] = desk.reader.now(), chosen(desk, [worker])
    counts = desk.reader.counts(one.queues) if one.queues else {}
    depths = {name: counts[name].pending for name in one.queues if name in counts}
    out.answer({**worker_json(one, now), "depths": depths}, lambda: _show(one, now, depths))


def _show(one: WorkerInfo, now: int, depths: dict[QueueName, int]) -> None:
    record(
        {
            "worker": one.id,
            "host": one.host,
            "pid": one.pid,
            "supervisor": one.supervisor or None,
            "state": one.state,
            "pulse": one.pulse(now),
            "last beat": _ago(one, now),
            "beats every": length(one.beat_ms),
            "up since": f"{moment(one.started_at)} ({length(max(0, now - one.started_at))})",
            "queues": ", ".join(one.queues),
            "paused": ", ".join(one.paused),
            "pending": ", ".join(f"{name}: {count}" for name, count in depths.items()),
            "slots": one.slots,
            "running": ", ".join(one.running),
            "ran last": ", ".join(one.recent) or None,
            "stuck": one.stuck or None,
            "abandoned": one.abandoned or None,
            "completed": one.completed,
            "failed": one.failed,
            "memory": None if one.memory is None else f"{one.memory // _MEGABYTE} MB",
            "processor": None if one.cpu is None else f"{one.cpu:.0%} of a core",
        }
    )


def _ago(one: WorkerInfo, now: int) -> str:
    return f"{length(max(0, now - one.beat_at))} ago"


# ------------------------------------------------------------------ asking


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which workers, and whether to wait for what they say."""

    ids: Sequence[str]
    everybody: bool
    no_wait: bool
    yes: bool = True
    queue: str | None = None


def asking(func: Func) -> Func:
    """The options of all commands that ask a worker for something."""
    for option in (
        click.option("--no-wait", is_flag=True, help="Do not wait for the answer."),
        click.option("--all", "everybody", is_flag=True, help="All workers that are not dead."),
        click.argument("ids", metavar="[ID]...", nargs=-1),
    ):
        func = option(func)
    return func


def queue_option(func: Func) -> Func:
    return click.option("--queue", type=QueueParam(), help="Only this queue.")(func)


@workers.command(
    epilog="Examples: `forebay workers pause --all`, `forebay workers pause 01KXY --queue mail`."
)
@asking
@queue_option
@at_store()
def pause(desk: Desk, out: Output, **values: Any) -> None:
    """Let workers claim nothing more until they are resumed.

    What runs goes on; what they have claimed and not started goes back. `forebay queues pause` pauses a
    queue for all workers, also for those that start later.
    """
    ask(desk, out, CommandKind.PAUSE, Asked(**values))


@workers.command(epilog="Example: `forebay workers resume --all`.")
@asking
@queue_option
@at_store()
def resume(desk: Desk, out: Output, **values: Any) -> None:
    """Let paused workers claim again."""
    ask(desk, out, CommandKind.RESUME, Asked(**values))


@workers.command(epilog="Example: `forebay workers stop 01KXY`.")
@asking
@yes_option
@at_store()
def stop(desk: Desk, out: Output, **values: Any) -> None:
    """Stop workers in order, as SIGTERM does.

    They claim nothing more, let running jobs end for their --drain time, and hand back the rest.
    """
    ask(desk, out, CommandKind.STOP, Asked(**values))


@workers.command(epilog="Example: `forebay workers drain 01KXY`.")
@asking
@yes_option
@at_store()
def drain(desk: Desk, out: Output, **values: Any) -> None:
    """Stop workers when all that runs has ended, however long that takes."""
    ask(desk, out, CommandKind.DRAIN, Asked(**values))


@workers.command(epilog="Example: `forebay workers halt 01KXY`.")
@asking
@yes_option
@at_store()
def halt(desk: Desk, out: Output, **values: Any) -> None:
    """Stop workers at once: what runs is interrupted and handed back, and no failure is counted."""
    ask(desk, out, CommandKind.HALT, Asked(**values))


@workers.command(epilog="Example: `forebay workers stacks 01KXY`.")
@asking
@at_store()
def stacks(desk: Desk, out: Output, **values: Any) -> None:
    """Show what the threads of workers are doing, and what their memory is full of."""
    ask(desk, out, CommandKind.STACKS, Asked(**values))


def ask(desk: Desk, out: Output, kind: CommandKind, asked: Asked) -> None:
    """Ask, wait for the answers, and say them."""
    if bool(asked.ids) == asked.everybody:
        raise click.UsageError("Name workers by id, or all of them with --all.")
    found = alive(desk) if asked.everybody else chosen(desk, asked.ids)
    if asked.everybody and found:
        confirm(f"{kind.capitalize()} {workers_of(len(found))} of {desk.name}?", yes=asked.yes)
    queue = QueueName(asked.queue) if asked.queue else None
    sent = desk.store.send(kind, [one.id for one in found], queue=queue, actor=desk.actor) if found else []
    if not asked.no_wait:
        sent = awaited(desk, sent)
    _report(desk, out, sent, is_waited=not asked.no_wait)


def chosen(desk: Desk, ids: Sequence[str]) -> list[WorkerInfo]:
    """The workers that these ids mean, each once."""
    found = desk.reader.workers()
    return list({one.id: one for one in (_meant(found, given) for given in ids)}.values())


def _meant(found: Sequence[WorkerInfo], given: str) -> WorkerInfo:
    whole = [one for one in found if one.id == given]
    begin = [one for one in found if len(given) >= _SHORTEST and one.id.lower().startswith(given.lower())]
    fit = whole or begin
    if not fit:
        raise WorkerNotFound(f"there is no worker {given}; `forebay workers` lists those there are")
    if len(fit) > 1:
        raise ConfigError(
            f"{given} is the beginning of {len(fit)} workers: {', '.join(one.id for one in fit)}"
        )
    return fit[0]


def alive(desk: Desk) -> list[WorkerInfo]:
    """The workers that may hear something."""
    now = desk.reader.now()
    return [one for one in desk.reader.workers() if one.pulse(now) is not Pulse.DEAD]


def awaited(desk: Desk, sent: Sequence[Command]) -> list[Command]:
    """The commands with their answers, as far as those have come before they expire."""
    names = [command.id for command in sent]
    ends = time.monotonic() + COMMAND_EXPIRES_MS / 1_000
    while True:
        # First who is there, then the answers: a worker answers before it is taken off the list, so one that
        # was not there any more has said all it will say.
        there = {one.id for one in desk.reader.workers()}
        known = [new or old for new, old in zip(desk.reader.commands(names), sent, strict=True)]
        may_answer = any(command.answer is None and command.worker in there for command in known)
        if not may_answer or time.monotonic() >= ends:
            return known
        time.sleep(_LOOK_SECONDS)


def _report(desk: Desk, out: Output, sent: Sequence[Command], *, is_waited: bool) -> None:
    now, there = desk.reader.now(), {one.id: one for one in desk.reader.workers()}
    notes = {one.id: _note(one, there.get(one.worker), now, is_waited=is_waited) for one in sent}
    answers = [
        {"worker": one.worker, "command": one.id, "answer": one.answer, "note": notes[one.id]} for one in sent
    ]

    def people() -> None:
        _show_answers([(one.worker, one.answer or notes[one.id]) for one in sent])

    out.answer({"answers": answers}, people)
    status = _status(sent) if is_waited else Status.DONE
    if status is not Status.DONE:
        click.get_current_context().exit(status)


def _note(one: Command, worker: WorkerInfo | None, now: int, *, is_waited: bool) -> str:
    """What to say of a command without an answer."""
    if one.answer is not None:
        return ""
    if not is_waited:
        return "asked; what it answers is not waited for"
    if worker is None:
        return "no answer: it has ended, and is not on the list any more"
    taken = "it has heard and not answered" if one.taken_at is not None else "it may be stuck or dead"
    return f"no answer: {taken}; its last beat was {_ago(worker, now)}"


def _show_answers(lines: Sequence[tuple[WorkerId, str]]) -> None:
    if not lines:
        click.echo("There is no worker to ask.")
    elif any("\n" in line for _, line in lines):
        for worker, line in lines:
            click.echo(f"{worker}\n{text(line)}\n")
    else:
        table(("worker", "answer"), lines)


def _status(sent: Sequence[Command]) -> Status:
    """No answer weighs more than a refusal: what became of it is not known."""
    checks: Sequence[tuple[Status, Callable[[Command], bool]]] = (
        (Status.TIMED_OUT, lambda one: one.answer is None),
        (Status.BAD_ANSWER, lambda one: (one.answer or "").startswith("failed:")),
        (Status.REFUSED, lambda one: (one.answer or "").startswith("refused:")),
    )
    return next((status for status, fits in checks if any(map(fits, sent))), Status.DONE)


def workers_of(count: int) -> str:
    """A number of workers in words."""
    return "1 worker" if count == 1 else f"{count:,} workers"
