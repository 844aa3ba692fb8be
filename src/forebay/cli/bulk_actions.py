"""What operators do to jobs: to those named by id, or in batches to all that fit conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from forebay.cli.errors import ExitStatus
from forebay.cli.filters import Filter, resolve_ids, restrict_states
from forebay.cli.json_format import action_result_json
from forebay.cli.output import Output, confirm, format_job_count, print_table, progress_bar
from forebay.cli.store_session import StoreSession
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.operations.search import count_jobs
from forebay.stores.contract.values import BATCH, ActionResult

Progress = Callable[[int], None]


ActionCounts = dict[str, int]  # how many jobs each word of an answer is true of
_BUSY: Final = "held by another transaction (try again later)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAction:
    """One kind of act. Jobs chosen by conditions are let alone if their state is not `allowed`.

    A job that is in one of the `otherwise` states after it is not what `past` says, but what stands there:
    the word for programs and the one for people.
    """

    verb: str
    past: str
    allowed: Collection[JobState]
    apply_to_ids: Callable[[Sequence[JobId]], list[ActionResult]]
    apply_to_all: Callable[[JobQuery, Progress], ActionCounts]
    other_outcomes: Mapping[JobState, tuple[str, str]] = field(default_factory=dict)
    confirms_ids: bool = True

    def count_results(self, results: Iterable[ActionResult]) -> ActionCounts:
        """How many jobs were done what to; `busy` is there if another transaction holds some."""
        counts = {self.past: 0, **{word: 0 for word, _ in self.other_outcomes.values()}}
        for verdict in results:
            if verdict.applied:
                counts[self._label(verdict.state)] += 1
            elif verdict.is_busy:
                counts["busy"] = counts.get("busy", 0) + 1
        return counts

    def _label(self, state: JobState | None) -> str:
        word, _ = (state and self.other_outcomes.get(state)) or (self.past, "")
        return word

    def summary(self, counts: ActionCounts) -> str:
        """The same in words; what was done to no job is left out, unless nothing was done at all."""
        phrases = {self.past: self.past, "busy": _BUSY, **dict(self.other_outcomes.values())}
        some = {word: count for word, count in counts.items() if count} or {self.past: 0}
        return ", ".join(f"{format_job_count(count)} {phrases[word]}" for word, count in some.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """Which jobs: these, or those that fit."""

    ids: Sequence[str] = ()
    chosen: Filter
    everything: bool = False
    yes: bool = False
    group: str | None = None


def run_action(session: StoreSession, out: Output, action: JobAction, selection: JobSelection) -> None:
    """Do it, after asking, and say what was done."""
    everything = selection.everything or selection.group is not None
    ids = resolve_ids(selection.ids, selection.chosen, everything=everything)
    if ids:
        _run_on_ids(session, out, action, ids, yes=selection.yes)
    else:
        run_on_matching(
            session, out, action, selection.chosen.to_query(session), yes=selection.yes, group=selection.group
        )


def run_on_matching(
    session: StoreSession,
    out: Output,
    action: JobAction,
    query: JobQuery,
    *,
    yes: bool,
    group: str | None = None,
) -> None:
    """Do it to all jobs that fit.

    The number that is asked about is the number at that moment; what is done is counted again, job by job.
    """
    narrow = restrict_states(query, action.allowed, action.past)
    count, is_exact = count_jobs(session.reader, narrow, group)
    done = action.count_results([])
    if count or not is_exact:
        confirm(
            f"{action.verb.capitalize()} {format_job_count(count, is_exact=is_exact)} in {session.name}?",
            yes=yes,
        )
        with progress_bar(action.past, count) as tell:
            done = action.apply_to_all(narrow, tell)
    out.print_message(done, action.summary(done))


def _run_on_ids(
    session: StoreSession, out: Output, action: JobAction, ids: Sequence[JobId], *, yes: bool
) -> None:
    if action.confirms_ids:
        confirm(f"{action.verb.capitalize()} {format_job_count(len(ids))} in {session.name}?", yes=yes)
    verdicts: list[ActionResult] = []
    with progress_bar(action.past, len(ids)) as tell:
        for start in range(0, len(ids), BATCH):
            verdicts += action.apply_to_ids(ids[start : start + BATCH])
            tell(len(verdicts))
    if len(verdicts) == 1:
        verdicts[0].check()
    _report(out, action, verdicts)


def _report(out: Output, action: JobAction, results: Sequence[ActionResult]) -> None:
    done, tally = sum(verdict.applied for verdict in results), action.count_results(results)
    answer = {**tally, "jobs": [action_result_json(verdict) for verdict in results]}

    def people() -> None:
        if done < len(results):
            rows = [
                (one.job_id, one.state or "unknown", one.reason or "there is no such job")
                for one in results
                if not one.applied
            ]
            print_table(("id", "state", "why"), rows, title=f"Not {action.past}")
        click.echo(action.summary(tally))

    out.print_result(answer, people)
    if done < len(results):
        unknown = any(not one.applied and one.state is None for one in results)
        click.get_current_context().exit(ExitStatus.NOT_FOUND if unknown else ExitStatus.REFUSED)
