"""What a task may know about its own attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from forebay import (
    Cancel,
    ConfigError,
    Forebay,
    InvalidJob,
    LeaseLost,
    PayloadError,
    StoreUnavailable,
    current_job,
)
from forebay.app.current_job import set_current_job
from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import FencingToken, JobContext
from forebay.domain.progress import LogLine, Progress, StepResult
from forebay.payload.codec import encode_result
from forebay.stores.contract.store import Store
from tests.stores.support import WORKER, claim, new_job


@dataclass(frozen=True)
class Sum:
    total: int


@pytest.fixture
def context(store: Store) -> JobContext:
    store.insert([new_job(correlation_id="req-1")])
    [job] = claim(store)
    return JobContext(job)


@pytest.mark.shows("R-JOB-33", "R-IDEM-07")
def test_a_context_tells_job_attempt_and_token(context: JobContext) -> None:
    assert (context.id, context.attempt, context.fencing_token) == (
        context.job.id,
        1,
        FencingToken(1, WORKER),
    )


def test_of_two_tokens_of_a_job_the_later_attempt_is_greater() -> None:
    assert FencingToken(2, WORKER) > FencingToken(1, WORKER)


@pytest.mark.shows("R-CANCEL-09")
def test_a_context_hears_of_cancelling_and_of_a_lost_lease(context: JobContext) -> None:
    before = (context.is_cancelled, context.cancel_reason, context.is_lease_lost)

    context.mark_cancelled("not needed")
    context.mark_lease_lost()

    assert before == (False, None, False)
    assert (context.is_cancelled, context.cancel_reason, context.is_lease_lost) == (True, "not needed", True)


def test_lines_of_the_jobs_logger_carry_its_fields(
    context: JobContext, caplog: pytest.LogCaptureFixture
) -> None:
    context.logger.warning("half way")

    [line] = caplog.records
    fields = ("job_id", "task", "queue", "attempt", "correlation_id")
    assert [getattr(line, name) for name in fields] == [context.id, "t", "default", 1, "req-1"]


def test_outside_of_a_task_there_is_no_current_job() -> None:
    with pytest.raises(LookupError, match=r"no job is running here; current_job\(\) works inside a task"):
        copy_context().run(current_job)


def test_the_current_job_is_the_one_that_was_entered(context: JobContext) -> None:
    def run() -> JobContext:
        set_current_job(context)
        return current_job()

    assert copy_context().run(run) is context


@pytest.mark.shows("R-JOB-33", "R-IDEM-07")
def test_a_running_task_sees_its_own_job(live_app: Forebay) -> None:
    def who() -> list[object]:
        job = current_job()
        return [job.id, job.attempt, job.is_cancelled, job.is_lease_lost]

    async def who_async() -> list[object]:
        return who()

    tasks = [live_app.task(name="who")(who), live_app.task(name="who_async")(who_async)]
    with live_app.run_worker(threads=1):
        handles = [task.enqueue() for task in tasks]
        answers = [handle.result(timeout=120) for handle in handles]

    assert answers == [[handle.id, 1, False, False] for handle in handles]


class Heard:
    """A progress sink that keeps what was said, and answers at once."""

    def __init__(self, done: Mapping[str, bytes] = {}, refuse: str | None = None) -> None:
        self.done = done
        self.refuse = refuse
        self.words: list[Progress | LogLine] = []
        self.steps_kept: list[StepResult] = []
        self.looks = 0
        self.absences = 0

    def add(self, context: JobContext, what: Progress | LogLine) -> None:
        self.words.append(what)

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        self.steps_kept.append(step)
        pending = PendingStep(on_saved)
        pending.answer(self.refuse)
        pending.answer("the second answer does not count")
        return pending

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        self.looks += 1
        if self.looks <= self.absences:
            raise StoreUnavailable("not now")
        return self.done


def speaking(context: JobContext, **changes: Any) -> tuple[JobContext, Heard]:
    heard = Heard()
    return JobContext(replace(context.job, **changes), heard), heard


Stepping = Callable[..., Any]


@pytest.fixture(params=["step", "step_async"])
def stepping(request: pytest.FixtureRequest) -> Stepping:
    """Both ways to do a step, called like the first."""

    def blocking(context: JobContext, *args: Any, **kwargs: Any) -> Any:
        return context.step(*args, **kwargs)

    def on_a_loop(context: JobContext, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run(context.step_async(*args, **kwargs))

    return blocking if request.param == "step" else on_a_loop


def test_progress_and_lines_are_cut_to_what_is_kept(context: JobContext) -> None:
    context, heard = speaking(context)

    context.progress(1, 3, "x" * 5_000)
    context.log("a\x00b\ud800" + "y" * 5_000, "very loud indeed, and with many words")

    progress, line = heard.words
    assert isinstance(progress, Progress)
    assert (progress.done, progress.total, progress.attempt) == (1, 3, 1)
    assert isinstance(line, LogLine)
    assert len(progress.message) == len(line.text) == 2_000
    assert line.text.startswith("a\N{SYMBOL FOR NULL}b?")
    assert line.level == "very loud indeed, an"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "half", True, None, 10**400])
def test_progress_that_is_no_number_is_refused(context: JobContext, number: Any) -> None:
    with pytest.raises(InvalidJob, match="done must be a finite number"):
        context.progress(number)


def test_a_total_that_is_no_number_is_refused(context: JobContext) -> None:
    with pytest.raises(InvalidJob, match="total must be a finite number, not 'many'"):
        context.progress(1, "many")  # type: ignore[arg-type]


def test_without_a_progress_sink_log_lines_go_nowhere_and_steps_are_done(
    context: JobContext, stepping: Stepping
) -> None:
    context.progress(1)
    context.log("hi")
    context.heartbeat()

    assert stepping(context, "add", max, 1, 2) == 2


def test_a_heartbeat_says_the_last_progress_again_once_a_second(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("forebay.app.job_context._CLOCK.monotonic", lambda: now[0])
    context, heard = speaking(context)
    context.progress(5, 9, "going")

    for now[0] in (100.5, 100.9, 101.0, 101.1, 102.5):
        context.heartbeat()

    assert [getattr(word, "done", None) for word in heard.words] == [5, 5, 5]


def test_a_heartbeat_before_any_progress_is_a_sign_of_life(context: JobContext) -> None:
    context, heard = speaking(context)

    context.heartbeat()

    assert heard.words == [Progress(attempt=1)]


def test_a_heartbeat_hears_that_the_job_was_cancelled(context: JobContext) -> None:
    context.mark_cancelled("not needed")

    with pytest.raises(Cancel, match="not needed"):
        context.heartbeat()


@pytest.mark.shows("R-CANCEL-09")
def test_a_heartbeat_hears_that_the_lease_is_lost(context: JobContext) -> None:
    context.mark_lease_lost("swept")

    with pytest.raises(LeaseLost, match=r"the lease of job \w+, attempt 1, is lost: swept; .* so stop"):
        context.heartbeat()


def test_a_step_is_stored_with_its_result(context: JobContext, stepping: Stepping) -> None:
    context, heard = speaking(context)

    assert stepping(context, "add", lambda a, b: a + b, 1, b=2) == 3

    assert heard.steps_kept == [StepResult(name="add", result=encode_result(3), attempt=1)]


@pytest.mark.shows("R-IDEM-06")
def test_a_step_that_an_earlier_attempt_has_done_is_not_done_again(
    context: JobContext, stepping: Stepping
) -> None:
    context, heard = speaking(context, attempt=2)
    heard.done = {"add": encode_result(3)}
    calls: list[int] = []

    assert stepping(context, "add", calls.append, 1) == 3
    assert (calls, heard.steps_kept) == ([], [])


def test_earlier_steps_are_looked_for_once_and_not_in_a_first_attempt(
    context: JobContext, stepping: Stepping
) -> None:
    first, unheard = speaking(context)
    second, requested = speaking(context, attempt=2)

    for one in (first, second):
        stepping(one, "a", max, 1, 2)
        stepping(one, "b", max, 1, 2)

    assert (unheard.looks, requested.looks) == (0, 1)


def test_an_absent_store_is_asked_for_earlier_steps_until_it_answers(
    context: JobContext, stepping: Stepping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.app.job_context.STORE_RETRY_SECONDS", 0.01)
    context, heard = speaking(context, attempt=2)
    heard.done, heard.absences = {"add": encode_result(3)}, 2

    assert stepping(context, "add", max, 1, 2) == 3


def test_the_second_call_of_one_name_gets_the_first_result(context: JobContext, stepping: Stepping) -> None:
    context, heard = speaking(context)

    answers = [stepping(context, "roll", lambda: 4), stepping(context, "roll", lambda: 6)]

    assert (answers, len(heard.steps_kept)) == ([4, 4], 1)


def test_a_result_comes_back_as_a_later_attempt_would_get_it(context: JobContext, stepping: Stepping) -> None:
    @dataclass
    class Unknown:
        total: int

    def annotated() -> Sum:
        return Sum(7)

    def plain():  # type: ignore[no-untyped-def]
        return Unknown(7)

    context, _ = speaking(context)

    assert stepping(context, "annotated", annotated) == Sum(7)
    assert stepping(context, "plain", plain) == {"total": 7}


def test_a_stored_result_that_fits_its_function_no_more_is_named(
    context: JobContext, stepping: Stepping
) -> None:
    def annotated() -> Sum:
        return Sum(7)

    context, heard = speaking(context, attempt=2)
    heard.done = {"sum": encode_result("seven")}

    with pytest.raises(PayloadError, match="the stored result of step 'sum' does not fit its function"):
        stepping(context, "sum", annotated)


def test_a_result_that_cannot_be_stored_names_the_step(context: JobContext, stepping: Stepping) -> None:
    context, heard = speaking(context)

    with pytest.raises(PayloadError, match="the result of step 'open' cannot be stored: "):
        stepping(context, "open", object)
    assert heard.steps_kept == []


def test_a_step_that_is_refused_raises_that_the_lease_is_lost(
    context: JobContext, stepping: Stepping
) -> None:
    context, heard = speaking(context)
    heard.refuse = "attempt 2 is running"

    with pytest.raises(LeaseLost, match=r"the step was not stored: attempt 2 is running; .* so stop"):
        stepping(context, "add", max, 1, 2)


def test_with_a_lost_lease_no_step_is_begun(context: JobContext, stepping: Stepping) -> None:
    context, _ = speaking(context)
    context.mark_lease_lost("swept")
    calls: list[int] = []

    with pytest.raises(LeaseLost, match="is lost: swept"):
        stepping(context, "add", calls.append, 1)
    assert calls == []


@pytest.mark.parametrize("name", ["", "x" * 201, 7, None, "a\x00b", "\ud800"])
def test_a_step_needs_a_name(context: JobContext, stepping: Stepping, name: Any) -> None:
    with pytest.raises(InvalidJob, match="the name of a step must be a text of 1 to 200 characters, not "):
        stepping(context, name, max, 1, 2)


def test_a_job_can_have_a_thousand_steps(context: JobContext, stepping: Stepping) -> None:
    context, heard = speaking(context, attempt=2)
    heard.done = {str(number): encode_result(number) for number in range(1_000)}
    calls: list[int] = []

    with pytest.raises(ConfigError, match="step 'more' is one too many: a job can have 1,000 steps"):
        stepping(context, "more", calls.append, 1)
    assert (calls, stepping(context, "999", calls.append, 1)) == ([], 999)


def test_results_of_steps_are_bounded_together(context: JobContext, stepping: Stepping) -> None:
    context, heard = speaking(context, attempt=2)
    heard.done = {str(number): encode_result("x" * 1_000_000) for number in range(3)}
    stepping(context, "fits", "x".__mul__, 1_000_000)
    words = (
        "step 'more' brings the results of all steps of its job to 5,0.* the limit is 4,194,304; return less"
    )

    with pytest.raises(PayloadError, match=words):
        stepping(context, "more", "x".__mul__, 1_000_000)
    assert stepping(context, "more", "x".__mul__, 1_000) == "x" * 1_000
    assert stepping(context, "fits", "y".__mul__, 1) == "x" * 1_000_000


def test_results_of_steps_under_way_count_too(context: JobContext) -> None:
    context, _ = speaking(context)

    async def many() -> list[object]:
        fives = [context.step_async(f"s{number}", "x".__mul__, 1_000_000) for number in range(5)]
        return await asyncio.gather(*fives, return_exceptions=True)

    outcomes = asyncio.run(many())

    assert [type(one) for one in outcomes] == [str] * 4 + [PayloadError]


def test_steps_under_way_count_too(context: JobContext) -> None:
    context, heard = speaking(context, attempt=2)
    heard.done = {str(number): encode_result(number) for number in range(999)}

    async def both() -> int:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> int:
            begun.set()
            await go_on.wait()
            return 7

        first = asyncio.create_task(context.step_async("first", wait))
        await begun.wait()
        with pytest.raises(ConfigError, match="step 'second' is one too many"):
            await context.step_async("second", int)
        go_on.set()
        return await first

    assert asyncio.run(both()) == 7


def test_a_coroutine_function_is_a_step_only_where_it_can_be_awaited(context: JobContext) -> None:
    async def fetch() -> int:
        return 7

    with pytest.raises(ConfigError, match="step 'fetch' is a coroutine function: await step_async instead"):
        _ = context.step("fetch", fetch)
    assert asyncio.run(context.step_async("fetch", fetch)) == 7


def test_of_two_steps_of_one_name_at_one_moment_one_result_counts(context: JobContext) -> None:
    context, _ = speaking(context)

    async def both() -> list[int]:
        async def roll(number: int) -> int:
            await asyncio.sleep(0)
            return number

        return await asyncio.gather(*(context.step_async("roll", roll, number) for number in (4, 6)))

    assert asyncio.run(both()) == [4, 4]


def test_coroutines_that_ask_for_earlier_steps_at_one_moment_share_one_look(context: JobContext) -> None:
    context, heard = speaking(context, attempt=2)
    heard.absences = 1

    async def many() -> list[int]:
        return await asyncio.gather(*(context.step_async(f"{n}", abs, n) for n in range(50)))

    assert asyncio.run(many()) == list(range(50))
    assert heard.looks == 2  # one for all, after one that found no listener


def test_an_answer_to_a_loop_that_is_gone_hurts_no_other_caller() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    pending = PendingStep(lambda: loop.call_soon_threadsafe(print))

    pending.answer()

    assert pending.wait(0)


@pytest.mark.parametrize("job", [None, "send", 7])
def test_a_follow_up_that_is_no_job_is_refused(context: JobContext, job: Any) -> None:
    with pytest.raises(InvalidJob, match=r"a follow-up must be a job made by task\.job\(\.\.\.\), not "):
        context.follow_up(job)


def test_a_follow_up_has_the_job_as_its_parent_unless_it_names_another(context: JobContext) -> None:
    context.follow_up(new_job())
    context.follow_up(new_job(parent_id="another"))

    assert [job.parent_id for job in context.follow_ups] == [context.id, "another"]


def test_a_job_can_have_a_thousand_follow_ups(context: JobContext) -> None:
    for _ in range(1_000):
        context.follow_up(new_job())

    with pytest.raises(InvalidJob, match="a job can have 1,000 follow-ups; let one of them enqueue the rest"):
        context.follow_up(new_job())
