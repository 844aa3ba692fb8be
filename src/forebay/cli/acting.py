"""What operators do to jobs: to those named by id, or in batches to all that fit conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from forebay.app.searching import counted
from forebay.cli.failing import Status
from forebay.cli.filters import Filter, chosen_ids, narrowed
from forebay.cli.opening import Desk
from forebay.cli.output import Output, confirm, jobs_of, progress, table
from forebay.cli.shapes import verdict_json
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.stores.protocol import BATCH, Verdict

Progress = Callable[[int], None]


Tally = dict[str, int]  # how many jobs each word of an answer is true of
_BUSY: Final = "held by another transaction (try again later)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One kind of act. Jobs chosen by conditions are let alone if their state is not `allowed`.

    A job that is in one of the `otherwise` states after it is not what `past` says, but what stands there:
    the word for programs and the one for people.
    """

    verb: str
    past: str
    allowed: Collection[JobState]
    to_ids: Callable[[Sequence[JobId]], list[Verdict]]
    to_all: Callable[[JobQuery, Progress], Tally]
    otherwise: Mapping[JobState, tuple[str, str]] = field(default_factory=dict)
    asks_for_ids: bool = True

    def tally(self, verdicts: Iterable[Verdict]) -> Tally:
        """How many jobs were done what to; `busy` is there if another transaction holds some."""
        counts = {self.past: 0, **{word: 0 for word, _ in self.otherwise.values()}}
        for verdict in verdicts:
            if verdict.done:
                counts[self._word(verdict.state)] += 1
            elif verdict.is_busy:
                counts["busy"] = counts.get("busy", 0) + 1
        return counts

    def _word(self, state: JobState | None) -> str:
        word, _ = (state and self.otherwise.get(state)) or (self.past, "")
        return word

    def told(self, tally: Tally) -> str:
        """The same in words; what was done to no job is left out, unless nothing was done at all."""
        phrases = {self.past: self.past, "busy": _BUSY, **dict(self.otherwise.values())}
        some = {word: count for word, count in tally.items() if count} or {self.past: 0}
        return ", ".join(f"{jobs_of(count)} {phrases[word]}" for word, count in some.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which jobs: these, or those that fit."""

    ids: Sequence[str] = ()
    chosen: Filter
    everything: bool = False
    yes: bool = False
    group: str | None = None


def act(desk: Desk, out: Output, deed: Deed, choice: Choice) -> None:
    """Do it, after asking, and say what was done."""
    everything = choice.everything or choice.group is not None
    ids = chosen_ids(choice.ids, choice.chosen, everything=everything)
    if ids:
        _to_ids(desk, out, deed, ids, yes=choice.yes)
    else:
        to_matching(desk, out, deed, choice.chosen.query(desk), yes=choice.yes, group=choice.group)


def to_matching(
    desk: Desk, out: Output, deed: Deed, query: JobQuery, *, yes: bool, group: str | None = None
) -> None:
    """Do it to all jobs that fit.

    The number that is asked about is the number at that moment; what is done is counted again, job by job.
    """
    narrow = narrowed(query, deed.allowed, deed.past)
    count, is_exact = counted(desk.reader, narrow, group)
    done = deed.tally([])
    if count or not is_exact:
        confirm(f"{deed.verb.capitalize()} {jobs_of(count, is_exact=is_exact)} in {desk.name}?", yes=yes)
        with progress(deed.past, count) as tell:
            done = deed.to_all(narrow, tell)
    out.say(done, deed.told(done))


def _to_ids(desk: Desk, out: Output, deed: Deed, ids: Sequence[JobId], *, yes: bool) -> None:
    if deed.asks_for_ids:
        confirm(f"{deed.verb.capitalize()} {jobs_of(len(ids))} in {desk.name}?", yes=yes)
    verdicts: list[Verdict] = []
    with progress(deed.past, len(ids)) as tell:
        for start in range(0, len(ids), BATCH):
            verdicts += deed.to_ids(ids[start : start + BATCH])
            tell(len(verdicts))
    if len(verdicts) == 1:
        verdicts[0].check()
    _report(out, deed, verdicts)


def _report(out: Output, deed: Deed, verdicts: Sequence[Verdict]) -> None:
    done, tally = sum(verdict.done for verdict in verdicts), deed.tally(verdicts)
    answer = {**tally, "jobs": [verdict_json(verdict) for verdict in verdicts]}

    def people() -> None:
        if done < len(verdicts):
            rows = [
                (one.job_id, one.state or "unknown", one.reason or "there is no such job")
                for one in verdicts
                if not one.done
            ]
            table(("id", "state", "why"), rows, title=f"Not {deed.past}")
        click.echo(deed.told(tally))

    out.answer(answer, people)
    if done < len(verdicts):
        unknown = any(not one.done and one.state is None for one in verdicts)
        click.get_current_context().exit(Status.NOT_FOUND if unknown else Status.REFUSED)
