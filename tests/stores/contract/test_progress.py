"""Progress: what a running attempt says is kept with its job, and only while it holds its lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import (
    AttemptError,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
)
from forebay.domain.progress import (
    MAX_LINE,
    MAX_LINES,
    MAX_STEP_BYTES,
    MAX_STEPS,
    JobProgress,
    LogLine,
    Progress,
    ProgressUpdate,
    StepResult,
)
from forebay.errors import PayloadError, StoreRefused
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MAIL,
    SECOND,
    SWEEPER,
    T0,
    UNKNOWN,
    W1,
    W2,
    ended,
    events_of,
    lease,
    look,
    lose,
    make,
    put,
    settle,
    start,
    started,
)

HALF = Progress(done=1, total=2, message="half")
ALL = JobProgress(
    progress=Progress(done=1, total=2, message="half", attempt=1, at=T0),
    lines=(LogLine(at=5, level="info", text="hello", attempt=1),),
    steps=(StepResult(name="fetch", result=b"1", attempt=1, at=T0),),
)


def update(job: Job, **fields: Any) -> ProgressUpdate:
    return ProgressUpdate(lease=lease(job), **fields)


def update_all(job: Job) -> ProgressUpdate:
    """A bit of everything."""
    hello = LogLine(at=5, level="info", text="hello")
    return update(job, progress=HALF, lines=(hello,), steps=(StepResult(name="fetch", result=b"1"),))


def keep(store: Store, *updates: ProgressUpdate, worker: WorkerId = W1) -> SettleAndClaimResult:
    return store.settle_and_claim(worker, updates=updates)


def lines(texts: Sequence[str]) -> tuple[LogLine, ...]:
    return tuple(LogLine(at=7, level="info", text=text) for text in texts)


def steps(names: Sequence[str], result: bytes = b"1") -> tuple[StepResult, ...]:
    return tuple(StepResult(name=name, result=result) for name in names)


def texts_of(reader: Reader, job_id: JobId) -> list[str]:
    return [line.text for line in reader.progress(job_id).lines]


# What is kept


@pytest.mark.shows("R-LEASE-38")
def test_all_that_the_holder_of_a_lease_says_is_kept_with_the_job(store: Store, reader: Reader) -> None:
    job = started(store)

    answer = keep(store, update_all(job))

    assert answer.refused_updates == ()
    assert reader.progress(job.id) == ALL


def test_the_history_of_a_job_has_its_progress(store: Store, reader: Reader) -> None:
    job = started(store)
    keep(store, update_all(job))

    history = reader.history(job.id)

    assert history is not None
    assert history.progress == ALL


@pytest.mark.parametrize("job_id", [None, UNKNOWN])
def test_a_job_that_said_nothing_has_no_progress(store: Store, reader: Reader, job_id: JobId | None) -> None:
    silent = started(store)

    assert reader.progress(job_id or silent.id) == JobProgress()


@pytest.mark.shows("R-LEASE-38")
def test_progress_replaces_the_one_before_with_the_stores_time_and_the_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    keep(store, update(job, progress=HALF))
    settle(store, job, Failed(BOOM, 0))
    again = start(store)
    clock.advance(ms=9)

    keep(store, update(again, progress=Progress(done=2.5, at=1, attempt=77)))

    assert reader.progress(job.id).progress == Progress(done=2.5, attempt=2, at=T0 + 9)


def test_a_progress_update_without_progress_leaves_the_one_before(store: Store, reader: Reader) -> None:
    job = started(store)
    keep(store, update(job, progress=HALF))

    keep(store, update(job, lines=lines(["later"])))

    assert reader.progress(job.id).progress == ALL.progress


def test_a_number_that_cannot_be_written_is_left_out(store: Store, reader: Reader) -> None:
    job = started(store)

    keep(store, update(job, progress=Progress(done=float("nan"), total=float("inf"))))

    assert reader.progress(job.id).progress == Progress(attempt=1, at=T0)


def test_log_lines_stay_in_their_order_with_their_own_time_and_the_attempt(
    store: Store, reader: Reader
) -> None:
    job = started(store)
    keep(store, update(job, lines=(LogLine(at=9, level="info", text="one"),)))
    settle(store, job, Failed(BOOM, 0))
    again = start(store)

    keep(
        store,
        update(again, lines=(LogLine(at=3, level="error", text="two"),)),
        update(again, lines=lines(["three"])),
    )

    assert reader.progress(job.id).lines == (
        LogLine(at=9, level="info", text="one", attempt=1),
        LogLine(at=3, level="error", text="two", attempt=2),
        LogLine(at=7, level="info", text="three", attempt=2),
    )


@pytest.mark.parametrize("at_once", [1, 70, 450])
def test_of_log_lines_the_last_200_are_kept(store: Store, reader: Reader, at_once: int) -> None:
    job = started(store)
    all_texts = [str(number) for number in range(450)]

    for first in range(0, 450, at_once):
        keep(store, update(job, lines=lines(all_texts[first : first + at_once])))

    assert MAX_LINES == 200
    assert texts_of(reader, job.id) == all_texts[-200:]


def numbered(first: int, texts: Sequence[str]) -> tuple[LogLine, ...]:
    return tuple(replace(line, number=number) for number, line in enumerate(lines(texts), first))


def test_lines_that_are_offered_again_are_kept_once(store: Store, reader: Reader) -> None:
    """As after an answer that was lost: the same lines come again, with what was said meanwhile."""
    job = started(store)
    texts = [str(number) for number in range(250)]
    keep(store, update(job, lines=numbered(1, texts[:150])))

    keep(store, update(job, lines=numbered(51, texts[50:])))
    keep(store, update(job, lines=numbered(51, texts[50:])))

    assert texts_of(reader, job.id) == texts[-200:]
    assert [line.number for line in reader.progress(job.id).lines] == list(range(51, 251))


def test_each_attempt_numbers_its_own_lines_and_lines_without_a_number_are_always_new(
    store: Store, reader: Reader
) -> None:
    job = started(store)
    keep(store, update(job, lines=numbered(1, ["same", "same"])))
    settle(store, job, Failed(BOOM, 0))
    second = start(store)
    keep(store, update(second, lines=lines(["new"])))
    keep(store, update(second, lines=lines(["new"])))
    settle(store, second, Failed(BOOM, 0))
    third = start(store)
    keep(store, update(third, lines=numbered(1, ["same"])))

    kept = [(line.attempt, line.number, line.text) for line in reader.progress(job.id).lines]
    assert kept == [(1, 1, "same"), (1, 2, "same"), (2, 0, "new"), (2, 0, "new"), (3, 1, "same")]


def test_a_line_without_a_number_gets_none_from_the_lines_of_other_jobs(store: Store, reader: Reader) -> None:
    first, second = started(store), started(store)
    keep(store, update(first, lines=numbered(1, ["a", "b"])))

    keep(store, update(second, lines=lines(["c"])))

    assert [line.number for line in reader.progress(second.id).lines] == [0]


def test_exactly_200_log_lines_are_all_kept(store: Store, reader: Reader) -> None:
    job = started(store)
    all_texts = [str(number) for number in range(200)]

    keep(store, update(job, lines=lines(all_texts)))

    assert texts_of(reader, job.id) == all_texts


def test_a_long_line_is_cut_and_odd_characters_cost_no_other_attempt_a_line(
    store: Store, reader: Reader
) -> None:
    job = started(store)

    keep(
        store,
        update(
            job,
            progress=Progress(message="x" * 3_000),
            lines=lines(["y" * 3_000, "a\x00b", "file \udc80", "größer"]),
        ),
    )

    kept = reader.progress(job.id)
    assert kept.progress is not None
    assert kept.progress.message == "x" * MAX_LINE
    assert [line.text for line in kept.lines] == ["y" * MAX_LINE, "a␀b", "file ?", "größer"]


def test_steps_stay_in_the_order_in_which_they_were_done(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    keep(store, update(job, steps=steps(["z", "m"], b"\x00\xff")))
    clock.advance(ms=4)

    keep(store, update(job, steps=steps(["a"], b"")))

    assert reader.progress(job.id).steps == (
        StepResult(name="z", result=b"\x00\xff", attempt=1, at=T0),
        StepResult(name="m", result=b"\x00\xff", attempt=1, at=T0),
        StepResult(name="a", result=b"", attempt=1, at=T0 + 4),
    )


def test_a_step_that_is_there_already_stays_as_it_was(store: Store, reader: Reader) -> None:
    job = started(store)
    keep(store, update(job, steps=steps(["fetch"], b"first")))
    settle(store, job, Failed(BOOM, 0))
    again = start(store)

    keep(store, update(again, steps=steps(["fetch", "send", "send"], b"second")))

    assert [(step.name, step.result, step.attempt) for step in reader.progress(job.id).steps] == [
        ("fetch", b"first", 1),
        ("send", b"second", 2),
    ]


def test_after_1000_steps_no_more_are_kept(store: Store, reader: Reader) -> None:
    job = started(store)
    names = [f"step {number}" for number in range(1_000)]
    keep(store, update(job, steps=steps(names[:-1])))

    keep(store, update(job, steps=steps([names[0], names[-1], "one too many"])))
    keep(store, update(job, steps=steps(["another"])))

    assert MAX_STEPS == 1_000
    assert [step.name for step in reader.progress(job.id).steps] == names


def test_results_of_steps_are_bounded_together(store: Store, reader: Reader) -> None:
    job, other = started(store), started(store)
    mib = b"1" * 1_048_576
    keep(store, update(job, steps=steps(["a", "b"], mib)))
    keep(store, update(job, steps=steps(["c", "d"], mib)))
    late = update(job, progress=HALF, lines=lines(["late"]), steps=steps(["one too many"], mib))

    for updates in ([late], [update(other, steps=steps(["x"])), late]):
        with pytest.raises(PayloadError, match=r"step 'one too many' brings .* return a reference") as failed:
            keep(store, *updates)
        assert failed.value.field == "result"
    together = [update(other, steps=steps(names, mib)) for names in (["p", "q", "r"], ["p", "s", "t"])]
    with pytest.raises(PayloadError, match=r"step 't' brings the results .* to 5,242,\d{3} bytes"):
        keep(store, *together)

    kept = reader.progress(job.id)
    assert ([step.name for step in kept.steps], kept.progress, kept.lines) == (["a", "b", "c", "d"], None, ())
    assert sum(len(step.result) for step in kept.steps) == MAX_STEP_BYTES
    assert reader.progress(other.id) == JobProgress()
    # Offered again because an answer was lost, or small enough to be there for what encryption adds.
    keep(store, update(job, steps=(*steps(["a", "d"], mib), *steps(["small"]))))
    assert len(reader.progress(job.id).steps) == 5


def test_jobs_do_not_share_their_progress(store: Store, reader: Reader) -> None:
    first, second = started(store), started(store)
    keep(store, update_all(first))

    keep(
        store,
        update(
            second, progress=Progress(done=9), lines=lines(["other"] * 201), steps=steps(["fetch"], b"other")
        ),
    )

    assert reader.progress(first.id) == ALL
    assert [step.result for step in reader.progress(second.id).steps] == [b"other"]


def test_each_job_has_lines_and_steps_to_the_full(store: Store, reader: Reader) -> None:
    first, second = started(store), started(store)
    names = [f"step {number}" for number in range(600)]
    keep(store, update(first, lines=lines(["early"]), steps=steps(names)))

    keep(store, update(second, lines=lines(["other"] * 200), steps=steps(names)))
    keep(store, update(second, lines=lines(["other"] * 200)))
    keep(store, update(first, lines=lines(["late"])))

    assert texts_of(reader, first.id) == ["early", "late"]
    assert [len(reader.progress(job.id).steps) for job in (first, second)] == [600, 600]


def test_lines_and_steps_do_not_count_for_each_other(store: Store, reader: Reader) -> None:
    job, lines_only = started(store), started(store)
    names = [f"step {number}" for number in range(500)]

    keep(store, update(job, lines=lines(["early"]), steps=steps(names)))
    keep(store, update(job, lines=lines(["late"])))
    for _ in range(6):
        keep(store, update(lines_only, progress=HALF, lines=lines(["x"] * 200)))
    keep(store, update(lines_only, steps=steps(["fetch"])))
    keep(store, update(lines_only, lines=lines(["x"])))

    assert texts_of(reader, job.id) == ["early", "late"]
    assert [step.name for step in reader.progress(job.id).steps] == names
    rest = reader.progress(lines_only.id)
    assert (len(rest.lines), len(rest.steps), rest.progress) == (200, 1, ALL.progress)


def test_progress_of_several_jobs_and_of_one_that_is_not_held_are_told_apart(
    store: Store, reader: Reader
) -> None:
    held, other = started(store), started(store, W2)

    answer = keep(store, update(other, lines=lines(["no"])), update(held, lines=lines(["yes"])))

    assert [(refusal.lease, refusal.reason) for refusal in answer.refused_updates] == [
        (lease(other), "other worker")
    ]
    assert (texts_of(reader, held.id), texts_of(reader, other.id)) == (["yes"], [])


def test_a_job_with_an_id_that_its_caller_brought_has_progress_too(store: Store, reader: Reader) -> None:
    job = started(store, id=JobId("mine"))

    answer = keep(store, update_all(job))

    assert answer.refused_updates == ()
    assert reader.progress(JobId("mine")) == ALL


def test_an_id_that_is_used_again_has_no_progress_of_the_job_before(store: Store, reader: Reader) -> None:
    job = started(store, id=JobId("mine"))
    keep(store, update_all(job))
    settle(store, job, Completed())
    store.delete([job.id])

    put(store, id=JobId("mine"))

    assert reader.progress(JobId("mine")) == JobProgress()


# The guard


def test_progress_are_kept_before_the_same_call_settles_the_job(store: Store, reader: Reader) -> None:
    job = started(store)

    answer = store.settle_and_claim(W1, [ended(job, Completed(b"1"))], updates=[update_all(job)])

    assert (answer.settled, answer.refused_updates) == ((job.id,), ())
    assert reader.progress(job.id) == ALL


def test_progress_and_a_claim_go_in_one_call(store: Store, reader: Reader) -> None:
    job, other = started(store), put(store)

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1, updates=[update_all(job)])

    assert [claimed.id for claimed in answer.jobs] == [other]
    assert reader.progress(job.id) == ALL


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM, HOUR), Discarded(BOOM), Snoozed(HOUR)])
def test_after_its_end_an_attempt_has_nothing_to_say(store: Store, reader: Reader, outcome: Outcome) -> None:
    job = started(store)
    settle(store, job, outcome)

    answer = keep(store, update_all(job))

    assert [(refusal.lease, refusal.reason) for refusal in answer.refused_updates] == [
        (lease(job), "other state")
    ]
    assert reader.progress(job.id) == JobProgress()


def test_an_older_attempt_has_nothing_to_say(store: Store, reader: Reader) -> None:
    job = started(store)
    settle(store, job, Failed(BOOM, 0))
    start(store)

    answer = keep(store, update_all(job))

    assert [refusal.reason for refusal in answer.refused_updates] == ["other attempt"]
    assert reader.progress(job.id) == JobProgress()


def test_after_a_takeover_only_the_sweeper_may_speak(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = started(store)
    clock.advance(ms=HOUR)
    store.sweep(SWEEPER)

    refused = keep(store, update_all(job))
    kept = keep(store, update(job, lines=lines(["swept"])), worker=SWEEPER)

    assert [refusal.reason for refusal in refused.refused_updates] == ["other worker"]
    assert kept.refused_updates == ()
    assert texts_of(reader, job.id) == ["swept"]


def test_a_progress_update_about_an_unknown_job_is_answered_as_gone(store: Store) -> None:
    answer = keep(store, ProgressUpdate(lease=Lease(UNKNOWN, 1), progress=HALF))

    assert [refusal.reason for refusal in answer.refused_updates] == ["gone"]


def test_progress_that_are_not_kept_leave_no_event(store: Store, reader: Reader) -> None:
    job = started(store)

    keep(store, update_all(job), worker=W2)

    assert events_of(reader, job.id) == []


def test_a_call_that_is_undone_keeps_no_progress(store: Store, reader: Reader) -> None:
    job = started(store)
    cannot_be_held = ended(job, Failed(AttemptError(type="Boom", message="\ud800")))

    with pytest.raises(StoreRefused):
        store.settle_and_claim(W1, [cannot_be_held], updates=[update_all(job)])

    assert reader.progress(job.id) == JobProgress()
    assert look(reader, job.id).state is JobState.RUNNING


def test_a_step_whose_name_cannot_be_written_is_refused_with_all_that_came_along(
    store: Store, reader: Reader
) -> None:
    job = started(store)

    with pytest.raises(StoreRefused):
        keep(store, update_all(job), update(job, steps=steps(["\ud800"])))

    assert reader.progress(job.id) == JobProgress()


# How long they stay


@pytest.mark.parametrize(
    "outcome", [Completed(b"1"), Failed(BOOM, 0), Failed(BOOM, HOUR), Discarded(BOOM), Snoozed(HOUR)]
)
def test_progress_stay_with_the_job_however_its_attempt_ends(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    job = started(store)
    keep(store, update_all(job))

    settle(store, job, outcome)

    assert reader.progress(job.id) == ALL


def test_progress_survive_the_death_of_their_worker(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store)
    keep(store, update_all(job))
    clock.advance(ms=HOUR)
    [swept] = store.sweep(SWEEPER)

    settle(store, swept, Lost("died"), SWEEPER)

    assert reader.progress(job.id) == ALL


@pytest.mark.parametrize("queue", [DEFAULT, MAIL])
@pytest.mark.parametrize("outcome", [Discarded(BOOM), "cancel"])
def test_progress_survive_a_revival_also_into_another_queue(
    store: Store, reader: Reader, outcome: Any, queue: QueueName
) -> None:
    job = started(store)
    keep(store, update_all(job))
    if outcome == "cancel":
        settle(store, job, Snoozed(HOUR))
        store.cancel([job.id])
    else:
        settle(store, job, outcome)

    store.revive([job.id], queue=queue)
    again = start(store, queue=queue)
    keep(store, update(again, steps=steps(["fetch", "send"], b"new")))

    assert [(step.name, step.result) for step in reader.progress(job.id).steps] == [
        ("fetch", b"1"),
        ("send", b"new"),
    ]


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RETRYING, JobState.DEAD, JobState.COMPLETED])
def test_progress_go_with_a_job_that_is_deleted_and_others_stay(
    store: Store, reader: Reader, state: JobState
) -> None:
    kept, job = started(store), started(store)
    keep(store, update_all(kept), update_all(job))
    outcome: dict[JobState, Outcome] = {
        JobState.PENDING: Interrupted(),
        JobState.RETRYING: Failed(BOOM, HOUR),
        JobState.DEAD: Discarded(BOOM),
        JobState.COMPLETED: Completed(),
    }
    settle(store, job, outcome[state])
    assert look(reader, job.id).state is state

    store.delete([job.id])

    assert (reader.progress(job.id), reader.progress(kept.id)) == (JobProgress(), ALL)


@pytest.mark.parametrize("outcome", [Completed(b"1"), Discarded(BOOM)])
def test_progress_go_with_jobs_that_are_pruned_and_others_stay(
    store: Store, reader: Reader, clock: ManualClock, outcome: Outcome
) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": DAY, "keep_dead_ms": DAY})
    jobs = [started(store) for _ in range(3)]
    keep(store, *map(update_all, jobs))
    for job in jobs[:2]:
        settle(store, job, outcome)
    clock.advance(ms=DAY)
    settle(store, jobs[2], outcome)

    assert store.prune() == 2

    assert [reader.progress(job.id) for job in jobs] == [JobProgress(), JobProgress(), ALL]


def test_pruning_jobs_that_said_nothing_works_as_ever(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"keep_finished_ms": SECOND})
    done = make(store, JobState.COMPLETED)
    clock.advance(ms=SECOND)

    assert store.prune() == 1
    assert reader.jobs([done]) == [None]


def test_what_a_job_said_before_it_crashed_is_there_for_its_next_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store)
    job = lose(store, clock)
    again = start(store)

    keep(store, update(again, steps=steps(["after"])))

    assert [step.attempt for step in reader.progress(job.id).steps] == [2]
    assert [event.kind for event in events_of(reader, job.id)] == [EventKind.SWEPT]
