"""Actions on jobs: on given ids, or in batches on all jobs that match conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from forebay.cli.errors import ExitStatus
from forebay.cli.job_filters import Filter, resolve_ids, restrict_states
from forebay.cli.json_format import action_result_json
from forebay.cli.output import Output, confirm, format_job_count, print_table, progress_bar
from forebay.cli.store_session import StoreSession
from forebay.domain.job import JobId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.operations.job_search import count_jobs
from forebay.stores.contract.claims_and_results import BATCH, ActionResult

Progress = Callable[[int], None]


ActionCounts = dict[str, int]  # number of jobs by outcome
_BUSY: Final = "locked by another transaction (try again later)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAction:
    """One kind of action. Jobs that are selected by conditions are skipped if their state is not `allowed`.

    A job that is in a state of `other_outcomes` afterwards is counted under the words given there, not under
    `past`: the first word is a key of the JSON document, the second is printed.
    """

    verb: str
    past: str
    allowed: Collection[JobState]
    apply_to_ids: Callable[[Sequence[JobId]], list[ActionResult]]
    apply_to_all: Callable[[JobQuery, Progress], ActionCounts]
    other_outcomes: Mapping[JobState, tuple[str, str]] = field(default_factory=dict)
    confirms_ids: bool = True

    def count_results(self, results: Iterable[ActionResult]) -> ActionCounts:
        """Count jobs by outcome; `busy` is present if another transaction has locked some."""
        counts = {self.past: 0, **{word: 0 for word, _ in self.other_outcomes.values()}}
        for result in results:
            if result.applied:
                counts[self._label(result.state)] += 1
            elif result.is_busy:
                counts["busy"] = counts.get("busy", 0) + 1
        return counts

    def _label(self, state: JobState | None) -> str:
        word, _ = (state and self.other_outcomes.get(state)) or (self.past, "")
        return word

    def summary(self, counts: ActionCounts) -> str:
        """Return the counts as a phrase; zero counts are left out unless all are zero."""
        phrases = {self.past: self.past, "busy": _BUSY, **dict(self.other_outcomes.values())}
        some = {word: count for word, count in counts.items() if count} or {self.past: 0}
        return ", ".join(f"{format_job_count(count)} {phrases[word]}" for word, count in some.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """Selected jobs: by id, or by conditions."""

    ids: Sequence[str] = ()
    chosen: Filter
    everything: bool = False
    yes: bool = False
    group: str | None = None


def run_action(session: StoreSession, out: Output, action: JobAction, selection: JobSelection) -> None:
    """Confirm, run the action, and print its results."""
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
    """Run the action on all matching jobs.

    The question shows the count at that moment. The result is counted again, job by job.
    """
    restricted = restrict_states(query, action.allowed, action.past)
    count, is_exact = count_jobs(session.reader, restricted, group)
    done = action.count_results([])
    if count or not is_exact:
        confirm(
            f"{action.verb.capitalize()} {format_job_count(count, is_exact=is_exact)} in {session.name}?",
            yes=yes,
        )
        with progress_bar(action.past, count) as report_progress:
            done = action.apply_to_all(restricted, report_progress)
    out.print_message(done, action.summary(done))


def _run_on_ids(
    session: StoreSession, out: Output, action: JobAction, ids: Sequence[JobId], *, yes: bool
) -> None:
    if action.confirms_ids:
        confirm(f"{action.verb.capitalize()} {format_job_count(len(ids))} in {session.name}?", yes=yes)
    results: list[ActionResult] = []
    with progress_bar(action.past, len(ids)) as report_progress:
        for start in range(0, len(ids), BATCH):
            results += action.apply_to_ids(ids[start : start + BATCH])
            report_progress(len(results))
    if len(results) == 1:
        results[0].check()
    _report(out, action, results)


def _report(out: Output, action: JobAction, results: Sequence[ActionResult]) -> None:
    applied, counts = sum(result.applied for result in results), action.count_results(results)
    answer = {**counts, "jobs": [action_result_json(result) for result in results]}

    def print_text() -> None:
        if applied < len(results):
            rows = [
                (result.job_id, result.state or "unknown", result.reason or "there is no such job")
                for result in results
                if not result.applied
            ]
            print_table(("id", "state", "why"), rows, title=f"Not {action.past}")
        click.echo(action.summary(counts))

    out.print_result(answer, print_text)
    if applied < len(results):
        unknown = any(not result.applied and result.state is None for result in results)
        click.get_current_context().exit(ExitStatus.NOT_FOUND if unknown else ExitStatus.REFUSED)
