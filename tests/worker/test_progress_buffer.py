"""What running jobs say, on its way to the store: merged, seldom, and never lost by an outage."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import JobId, WorkerId
from forebay.domain.outcome import AttemptError, Failed, Interrupted
from forebay.domain.progress import MAX_LINES, LogLine, Progress, StepResult
from forebay.errors import StoreUnavailable
from forebay.payload.codec import encode_result
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.task_invoker import JobInterrupted
from tests.app.watched_store import Held, Watched
from tests.worker.rig import Rig


def begun(rig: Rig) -> Assignment:
    [one] = rig.threads.begin()
    return one


def stored_progress(rig: Rig, job_id: JobId) -> tuple[float | None, list[str], list[str]]:
    """What the store has: progress, lines and steps."""
    notes = rig.reader.progress(job_id)
    done = None if notes.progress is None else notes.progress.done
    return done, [line.text for line in notes.lines], [step.name for step in notes.steps]


def a_step(name: str = "a") -> StepResult:
    return StepResult(name=name, result=encode_result(1), attempt=1)


@pytest.mark.shows("R-LEASE-38")
def test_what_a_job_says_is_kept_while_it_runs(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    context = begun(rig).context

    context.progress(1, 3, "one of three")
    context.log("hello", "DEBUG")
    coordinator.tick()

    assert stored_progress(rig, job_id) == (1, ["hello"], [])
    assert rig.job(job_id).state == "running"


def test_progress_is_merged_and_written_once_a_second(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    context = begun(rig).context

    context.progress(1)
    coordinator.tick()
    for done in (2, 3, 4):
        context.progress(done)
        context.log(f"at {done}")
        coordinator.tick()
    early = stored_progress(rig, job_id)
    rig.clock.advance(seconds=1)
    coordinator.tick()

    assert [early, stored_progress(rig, job_id)] == [(1, [], []), (4, ["at 2", "at 3", "at 4"], [])]


def test_the_coordinator_sleeps_no_longer_than_until_there_is_something_to_write(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    rig.insert()
    coordinator.tick()
    context = begun(rig).context
    context.progress(1)
    coordinator.tick()
    rig.clock.advance(seconds=0.75)

    context.progress(2)

    assert coordinator.tick() <= 0.25


def test_a_job_that_says_nothing_new_writes_nothing(rig: Rig) -> None:
    store = Watched(rig.store)
    coordinator = rig.coordinator(threads=1, store=store.contract)
    rig.insert()
    coordinator.tick()
    begun(rig).context.progress(1)
    coordinator.tick()
    written = store.calls.count("settle_and_claim")

    coordinator.tick()

    assert store.calls.count("settle_and_claim") == written


def test_the_last_words_go_with_the_settlement(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)
    one.context.progress(1)
    coordinator.tick()

    one.context.progress(2)
    one.context.log("good bye")
    rig.threads.finish(one, Failed(AttemptError(type="Oops")))
    coordinator.tick()

    assert stored_progress(rig, job_id) == (2, ["good bye"], [])
    assert rig.job(job_id).state == "retrying"


def test_who_talks_on_when_its_attempt_is_over_costs_one_look(rig: Rig) -> None:
    store = Watched(rig.store)
    coordinator = rig.coordinator(threads=1, store=store.contract)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)
    rig.threads.finish(one)
    coordinator.tick()
    coordinator.is_claiming = False  # from here on it asks the store only for what is said
    written = store.calls.count("settle_and_claim")

    for number in range(10):
        one.context.log(f"still here {number}")
        coordinator.tick()

    assert store.calls.count("settle_and_claim") == written + 1
    assert stored_progress(rig, job_id) == (None, [], [])


@pytest.mark.parametrize("is_stored", [False, True], ids=["call lost", "answer lost"])
def test_an_outage_loses_no_word_and_keeps_each_once(rig: Rig, is_stored: bool) -> None:
    is_away = [False]

    def away(name: str, _: object) -> None:
        if name == "settle_and_claim" and is_away[0]:
            raise StoreUnavailable("gone fishing")

    store = Watched(rig.store, away, too_late=is_stored)
    coordinator = rig.coordinator(threads=1, store=store.contract)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)
    is_away[0] = True
    for number in range(MAX_LINES + 50):
        one.context.log(str(number))
        one.context.progress(number)
        coordinator.tick()
    rig.threads.finish(one)
    coordinator.tick()
    is_away[0] = False
    coordinator.tick()

    done, lines, _ = stored_progress(rig, job_id)
    assert done == MAX_LINES + 49
    assert lines == [str(number) for number in range(50, MAX_LINES + 50)]
    assert rig.job(job_id).state == "completed"


def test_a_step_is_written_at_once_and_answered_when_it_is(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    context = begun(rig).context
    context.progress(1)
    coordinator.tick()
    assert context.progress_sink is not None

    pending = context.progress_sink.save_step(context, a_step())
    before = pending.wait(0)
    coordinator.tick()

    assert (before, pending.wait(0), pending.refusal) == (False, True, None)
    assert stored_progress(rig, job_id) == (1, [], ["a"])


def test_a_step_waits_through_an_outage(rig: Rig) -> None:
    failures = [1, 1]

    def away(name: str, _: object) -> None:
        if name == "settle_and_claim" and not failures:
            failures.append(1)
        elif name == "settle_and_claim" and len(failures) > 2:
            failures.pop()
            raise StoreUnavailable("gone fishing")

    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, away).contract)
    [job_id] = rig.insert()
    coordinator.tick()
    context = begun(rig).context
    assert context.progress_sink is not None
    failures += [1, 1]

    pending = context.progress_sink.save_step(context, a_step())
    answers = []
    for _ in range(3):
        coordinator.tick()
        answers.append(pending.wait(0))

    assert (answers, pending.refusal) == ([False, False, True], None)
    assert stored_progress(rig, job_id) == (None, [], ["a"])


def test_words_of_a_lost_attempt_are_refused_and_it_hears_of_it(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    context = begun(rig).context
    assert context.progress_sink is not None
    rig.clock.advance(seconds=31)
    assert [job.id for job in rig.store.sweep(WorkerId("sweeper"))] == [job_id]

    context.progress(1)
    pending = context.progress_sink.save_step(context, a_step())
    coordinator.tick()

    assert pending.wait(0)
    assert pending.refusal is not None
    assert context.is_lease_lost
    assert stored_progress(rig, job_id) == (None, [], [])


def test_a_step_after_the_end_of_its_attempt_is_refused(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    rig.insert()
    coordinator.tick()
    one = begun(rig)
    assert one.context.progress_sink is not None
    one.context.progress(1)
    rig.threads.finish(one)
    coordinator.tick()

    pending = one.context.progress_sink.save_step(
        one.context, a_step()
    )  # a thread that the job has left behind
    coordinator.tick()

    assert pending.wait(0)
    assert pending.refusal is not None


def test_a_progress_update_that_comes_with_a_job_handed_back_is_kept(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)

    one.context.log("stopped in order")
    rig.threads.finish(one, Interrupted())
    coordinator.tick()

    assert stored_progress(rig, job_id)[1] == ["stopped in order"]


class Alone:
    """A progress buffer without a coordinator, and how often it has woken one."""

    def __init__(self, context_of: Assignment, clock: ManualClock) -> None:
        self.wakeups = 0
        self.buffer = ProgressBuffer(clock, self._wake)
        self.context = context_of.context
        self.assignment = context_of

    def _wake(self) -> None:
        self.wakeups += 1


@pytest.fixture
def alone(rig: Rig) -> Alone:
    rig.coordinator(threads=1).tick()
    [_] = rig.insert()
    rig.coordinator(threads=1).tick()
    return Alone(begun(rig), rig.clock)


def test_many_updates_wake_the_coordinator_once(alone: Alone) -> None:
    for done in range(5):
        alone.buffer.add(alone.context, Progress(done=done))
        alone.buffer.add(alone.context, LogLine(at=1, level="INFO", text="hi"))

    assert alone.wakeups == 1


def test_an_interrupt_in_the_middle_of_an_update_delays_it_at_most(rig: Rig, alone: Alone) -> None:
    class Interrupting(dict[Any, Any]):
        """A list of messages in which an interrupt comes before the first entry."""

        is_first = True

        def __contains__(self, key: object) -> bool:
            if self.is_first:
                self.is_first = False
                raise JobInterrupted("right here")
            return super().__contains__(key)

    alone.buffer._dirty = Interrupting()
    with pytest.raises(JobInterrupted):
        alone.buffer.add(alone.context, LogLine(at=1, level="INFO", text="cut short"))
    before = alone.buffer.take_updates([])
    pending = alone.buffer.save_step(alone.context, a_step())  # in its `finally`
    [note] = alone.buffer.take_updates([])
    alone.buffer.confirm([])

    assert before == []
    assert ([line.text for line in note.lines], pending.wait(0)) == (["cut short"], True)


def test_words_that_an_interrupt_has_left_unlisted_go_with_the_end(alone: Alone) -> None:
    alone.buffer.add(alone.context, LogLine(at=1, level="INFO", text="last words"))
    alone.buffer._dirty.clear()

    [note] = alone.buffer.take_updates([alone.assignment])

    assert [line.text for line in note.lines] == ["last words"]


def test_a_step_that_will_not_be_written_is_answered(alone: Alone) -> None:
    waiting = alone.buffer.save_step(alone.context, a_step("before"))
    alone.buffer.close()
    late = alone.buffer.save_step(alone.context, a_step("after"))

    assert (waiting.wait(0), waiting.refusal) == (True, "the worker has stopped")
    assert (late.wait(0), late.refusal) == (True, "the attempt is over")


def test_a_step_that_is_offered_when_its_attempt_ends_is_answered(alone: Alone) -> None:
    pending = alone.buffer.save_step(alone.context, a_step())
    [note] = alone.buffer.take_updates([])

    alone.buffer.forget([alone.assignment])

    assert [step.name for step in note.steps] == ["a"]
    assert (pending.wait(0), pending.refusal) == (True, "the attempt is over")


def test_words_that_were_offered_in_vain_wait_for_the_end_of_a_job_that_is_completed_within(
    alone: Alone,
) -> None:
    alone.buffer.add(alone.context, LogLine(at=1, level="INFO", text="nearly done"))
    [in_vain] = alone.buffer.take_updates([])
    alone.context._state().is_completed_in_tx = True

    meanwhile = alone.buffer.take_updates([])
    alone.buffer.confirm([])
    [last] = alone.buffer.take_updates([alone.assignment])

    assert (meanwhile, alone.buffer.next_at()) == ([], float("inf"))
    assert last == in_vain


def test_without_words_there_is_nothing_to_take(alone: Alone) -> None:
    assert alone.buffer.take_updates([alone.assignment]) == []
    assert alone.buffer.next_at() == float("inf")


def test_without_a_store_to_read_there_are_no_earlier_steps(alone: Alone) -> None:
    assert alone.buffer.steps(alone.context) == {}


def test_a_wake_up_lets_a_busy_worker_look_for_cancels_soon(rig: Rig, other_store: Store) -> None:
    coordinator = rig.coordinator(threads=1)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)
    other_store.cancel([job_id], "not needed")

    coordinator.tick()  # no slot is free, and no wake-up came
    unheard = one.context.is_cancelled
    rig.inbox.wake()
    pause = coordinator.tick()
    too_soon = one.context.is_cancelled
    rig.clock.advance(seconds=0.1)
    coordinator.tick()

    assert (unheard, too_soon, one.context.cancel_reason) == (False, False, "not needed")
    assert pause <= 0.1


def test_wake_ups_are_worth_ten_looks_a_second_at_most(rig: Rig) -> None:
    store = Watched(rig.store)
    coordinator = rig.coordinator(threads=1, store=store.contract)
    rig.insert()
    coordinator.tick()
    begun(rig)
    looks = store.calls.count("settle_and_claim")

    for _ in range(100):
        rig.inbox.wake()
        coordinator.tick()
        rig.clock.advance(seconds=0.01)

    assert store.calls.count("settle_and_claim") - looks <= 11


# ------------------------------------------------------------------ another transaction holds the row


def test_what_meets_a_lock_waits_without_an_answer_and_is_kept_once_when_the_lock_is_gone(rig: Rig) -> None:
    held = Held(rig.store)
    coordinator = rig.coordinator(threads=1, store=held.contract)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)
    held.leases = {one.lease}
    assert one.context.progress_sink is not None
    one.context.log("hello")
    pending = one.context.progress_sink.save_step(one.context, a_step())
    for _ in range(5):
        coordinator.tick()
        rig.clock.advance(seconds=10)
    is_answered = pending.wait(0)
    held.leases = set()
    coordinator.tick()

    assert (is_answered, one.context.is_lease_lost, pending.wait(0), pending.refusal) == (
        False,
        False,
        True,
        None,
    )
    assert stored_progress(rig, job_id) == (None, ["hello"], ["a"])


def test_what_meets_a_lock_is_offered_again_after_pauses_that_grow(rig: Rig) -> None:
    held = Held(rig.store)
    coordinator = rig.coordinator(threads=1, store=held.contract)
    rig.insert()
    coordinator.tick()
    one = begun(rig)
    held.leases = {one.lease}
    assert one.context.progress_sink is not None
    one.context.progress_sink.save_step(one.context, a_step())
    buffer = coordinator._progress_buffer

    pauses = []
    for _ in range(8):
        coordinator.tick()
        pauses.append(round(buffer.next_at() - rig.clock.monotonic(), 3))
        rig.clock.advance(seconds=pauses[-1] + 0.001)

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_last_words_that_meet_a_lock_are_kept_with_the_settlement(rig: Rig) -> None:
    held = Held(rig.store)
    coordinator = rig.coordinator(threads=1, store=held.contract)
    [job_id] = rig.insert()
    coordinator.tick()
    one = begun(rig)
    held.leases = {one.lease}
    one.context.log("good bye")
    rig.threads.finish(one)
    coordinator.tick()
    calls_before = len(held.calls)
    coordinator.tick()  # they wait for their settlement: no other settle-and-claim fails because of them
    calls = len(held.calls) - calls_before
    before = rig.job(job_id).state
    held.leases = set()
    rig.clock.advance(seconds=10)
    coordinator.tick()

    assert (before, calls) == ("running", 1)
    assert rig.job(job_id).state == "completed"
    assert stored_progress(rig, job_id) == (None, ["good bye"], [])
