"""Every outcome, every branch: what is written because of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.job_states import JobState, check_transition
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Parked,
    Snoozed,
)
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import (
    MAX_REASON,
    OutcomeKind,
    Settlement,
    TokenCharge,
    decide,
    is_ready_early,
    is_same_end,
    promoted_at,
)
from tests.domain.sample_jobs import a_job

ERROR = AttemptError(type="ValueError", message="no such address", traceback="Traceback ...")
LOST = AttemptError(type="Lost", message="its worker died")
UNSTARTED = TokenCharge(("global", "queue:default", "task:send"), -1)
FEW = RetryPolicy(max_retries=2, max_crashes=2, jitter_high=0.0)


def row(name: str, given: Outcome, so_far: dict[str, Any], shows: tuple[str, ...] = (), **end: Any) -> Any:
    """A case: the job's numbers before, and all that its settlement says beyond the defaults."""
    return pytest.param(given, so_far, end, id=name, marks=pytest.mark.shows(*shows) if shows else ())


CASES = [
    row(
        "completed with a result",
        Completed(b"42"),
        {"failures": 1, "crashes": 1},
        outcome=OutcomeKind.COMPLETED,
        state=JobState.COMPLETED,
        failures=1,
        crashes=1,
        result=b"42",
    ),
    row(
        "held for another program",
        Parked("task:b", "no such task"),
        {"failures": 1},
        outcome=OutcomeKind.PARKED,
        state=JobState.PENDING,
        failures=1,
        lane="task:b",
        reason="no such task",
        charge=UNSTARTED,
        unstarted=1,
    ),
    row("completed with nothing", Completed(), {}, outcome=OutcomeKind.COMPLETED, state=JobState.COMPLETED),
    row(
        "first failure",
        Failed(ERROR),
        {},
        ("R-RETRY-01",),
        outcome=OutcomeKind.FAILED,
        state=JobState.RETRYING,
        failures=1,
        delay_ms=1_000,
        error=ERROR,
    ),
    row(
        "last failure that is tried again",
        Failed(ERROR),
        {"failures": 1},
        outcome=OutcomeKind.FAILED,
        state=JobState.RETRYING,
        failures=2,
        delay_ms=2_000,
        error=ERROR,
    ),
    row(
        "one failure too many",
        Failed(ERROR),
        {"failures": 2},
        ("R-RETRY-06",),
        outcome=OutcomeKind.FAILED,
        state=JobState.DEAD,
        failures=3,
        error=ERROR,
        reason="ValueError: no such address",
    ),
    row(
        "failure of a job without retries",
        Failed(ERROR),
        {"policy": RetryPolicy(max_retries=0)},
        ("R-RETRY-04",),
        outcome=OutcomeKind.FAILED,
        state=JobState.DEAD,
        failures=1,
        error=ERROR,
        reason="ValueError: no such address",
    ),
    row(
        "failure that names its own delay",
        Failed(ERROR, after_ms=90_000),
        {},
        outcome=OutcomeKind.FAILED,
        state=JobState.RETRYING,
        failures=1,
        delay_ms=90_000,
        error=ERROR,
    ),
    row(
        "failure that asks to be tried at once",
        Failed(ERROR, after_ms=0),
        {},
        outcome=OutcomeKind.FAILED,
        state=JobState.RETRYING,
        failures=1,
        error=ERROR,
    ),
    row(
        "its own delay does not lift the limit",
        Failed(ERROR, after_ms=90_000),
        {"failures": 2},
        outcome=OutcomeKind.FAILED,
        state=JobState.DEAD,
        failures=3,
        error=ERROR,
        reason="ValueError: no such address",
    ),
    row(
        "crashes do not count as failures",
        Failed(ERROR),
        {"crashes": 2},
        outcome=OutcomeKind.FAILED,
        state=JobState.RETRYING,
        failures=1,
        crashes=2,
        delay_ms=1_000,
        error=ERROR,
    ),
    row(
        "snoozed",
        Snoozed(60_000),
        {"failures": 2, "crashes": 1},
        outcome=OutcomeKind.SNOOZED,
        state=JobState.SCHEDULED,
        failures=2,
        crashes=1,
        delay_ms=60_000,
    ),
    row(
        "discarded",
        Discarded(ERROR),
        {},
        ("R-JOB-57",),
        outcome=OutcomeKind.DISCARDED,
        state=JobState.DEAD,
        failures=1,
        error=ERROR,
        reason="ValueError: no such address",
    ),
    row(
        "cancelled",
        Cancelled("not needed"),
        {"failures": 1},
        outcome=OutcomeKind.CANCELLED,
        state=JobState.CANCELLED,
        failures=1,
        reason="not needed",
    ),
    row(
        "cancelled without a word",
        Cancelled(),
        {},
        outcome=OutcomeKind.CANCELLED,
        state=JobState.CANCELLED,
        reason="cancelled",
    ),
    row(
        "interrupted",
        Interrupted(),
        {"failures": 2, "crashes": 2},
        outcome=OutcomeKind.INTERRUPTED,
        state=JobState.PENDING,
        failures=2,
        crashes=2,
    ),
    row(
        "lost for the first time",
        Lost("its worker died"),
        {"failures": 2},
        outcome=OutcomeKind.LOST,
        state=JobState.PENDING,
        failures=2,
        crashes=1,
        error=LOST,
    ),
    row(
        "lost again",
        Lost("its worker died"),
        {"crashes": 1},
        ("R-SWEEP-13", "R-BUG-10"),
        outcome=OutcomeKind.LOST,
        state=JobState.RETRYING,
        crashes=2,
        delay_ms=1_000,
        error=LOST,
    ),
    row(
        "lost once too often",
        Lost("its worker died"),
        {"crashes": 2},
        ("R-SWEEP-14",),
        outcome=OutcomeKind.LOST,
        state=JobState.DEAD,
        crashes=3,
        error=LOST,
        reason="lost 3 times, the last time: its worker died",
    ),
    row(
        "lost, and must never run twice",
        Lost("its worker died"),
        {"policy": RetryPolicy(max_crashes=0)},
        outcome=OutcomeKind.LOST,
        state=JobState.DEAD,
        crashes=1,
        error=LOST,
        reason="lost 1 times, the last time: its worker died",
    ),
    row(
        "lost before it was started",
        Lost("its worker died", started=False),
        {"crashes": 2},
        outcome=OutcomeKind.INTERRUPTED,
        state=JobState.PENDING,
        crashes=2,
        charge=UNSTARTED,
        unstarted=1,
    ),
]


@pytest.mark.parametrize(("outcome", "so_far", "end"), CASES)
def test_an_outcome_becomes_this_settlement(
    outcome: Outcome, so_far: dict[str, Any], end: dict[str, Any]
) -> None:
    job = a_job(**{"attempt": 7, "policy": FEW} | so_far)

    settlement = decide(job, outcome, 0.5)

    rest = {"failures": 0, "crashes": 0} | end
    assert settlement == Settlement(job_id=job.id, attempt=7, seq=job.seq, queue=job.queue, **rest)


@pytest.mark.parametrize(("outcome", "so_far", "end"), CASES)
def test_every_settlement_is_a_legal_move(
    outcome: Outcome, so_far: dict[str, Any], end: dict[str, Any]
) -> None:
    check_transition(JobState.RUNNING, decide(a_job(policy=FEW), outcome, 0.5).state)


@pytest.mark.shows("R-RETRY-05", "R-TEST-20")
def test_with_three_retries_a_job_runs_four_times() -> None:
    job, ends = a_job(policy=RetryPolicy(jitter_high=0.0)), []
    for attempt in range(1, 5):
        end = decide(job, Failed(ERROR), 0.0)
        ends.append((end.state.value, end.delay_ms))
        job = a_job(policy=job.policy, attempt=attempt + 1, failures=end.failures)

    assert ends == [("retrying", 1_000), ("retrying", 2_000), ("retrying", 4_000), ("dead", 0)]


@pytest.mark.shows("R-EDGE-11")
def test_a_job_that_always_kills_its_worker_is_dead_in_the_end() -> None:
    crashes = 0
    states: list[str] = []
    while not states or states[-1] != "dead":
        end = decide(a_job(crashes=crashes), Lost("its worker died"), 0.0)
        crashes = end.crashes
        states.append(end.state.value)

    assert states == ["pending", "retrying", "retrying", "dead"]


@pytest.mark.parametrize(
    ("outcome", "so_far", "delay"),
    [(Failed(ERROR), {}, 1_100), (Lost("its worker died"), {"crashes": 2}, 2_200)],
)
def test_the_roll_varies_the_delay(outcome: Outcome, so_far: dict[str, Any], delay: int) -> None:
    assert decide(a_job(**so_far), outcome, 1.0).delay_ms == delay


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert decide(a_job(), Discarded(AttemptError(type="Full")), 0.0).reason == "Full"


@pytest.mark.parametrize(
    ("outcome", "so_far"),
    [
        (Discarded(AttemptError(type="Full", message="\x00" * 5_000)), {}),
        (Failed(AttemptError(type="Full", message="\x00" * 5_000)), {"failures": 100}),
        (Cancelled("\x00" * 5_000), {}),
        (Lost("\x00" * 5_000), {"crashes": 100}),
    ],
)
def test_a_reason_is_cut_and_has_no_nul(outcome: Outcome, so_far: dict[str, Any]) -> None:
    reason = decide(a_job(**so_far), outcome, 0.0).reason

    assert reason is not None
    assert len(reason) == MAX_REASON
    assert "\x00" not in reason


# What an attempt has cost

SCOPES = ("global", "queue:default", "task:t", "key:tenant:acme")


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(b"1", cost=5),
        Failed(ERROR, cost=5),
        Snoozed(1, cost=5),
        Discarded(ERROR, cost=5),
        Cancelled(cost=5),
        Interrupted(cost=5),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_an_attempt_is_charged_what_it_has_cost_beyond_what_it_took(outcome: Outcome) -> None:
    job = a_job(task="t", limit_keys={"tenant": "acme"}, cost=2)

    assert decide(job, outcome, 0.0).charge == TokenCharge(SCOPES, 3)
    assert decide(replace(job, cost=5), outcome, 0.0).charge is None
    assert replace(decide(job, outcome, 0.0), charge=None) == decide(job, replace(outcome, cost=None), 0.0)


@pytest.mark.parametrize(
    "outcome", [Interrupted(started=False), Lost("gone", started=False), Parked("payload:2")]
)
def test_what_was_not_started_is_counted_as_such(outcome: Outcome) -> None:
    assert decide(a_job(attempt=3, unstarted=1), outcome, 0.0).unstarted == 2


@pytest.mark.parametrize(
    "outcome",
    [Completed(), Completed(cost=3), Failed(ERROR), Interrupted(), Lost("gone"), Parked("t", started=True)],
)
def test_what_has_begun_leaves_the_count_of_unstarted_attempts(outcome: Outcome) -> None:
    assert decide(a_job(attempt=3, unstarted=1), outcome, 0.0).unstarted == 0


@pytest.mark.parametrize(
    "outcome", [Interrupted(started=False), Lost("gone", started=False), Parked("payload:2")]
)
def test_what_was_not_started_has_cost_nothing(outcome: Outcome) -> None:
    job = a_job(task="t", limit_keys={"tenant": "acme"}, cost=2)

    assert decide(job, outcome, 0.0).charge == TokenCharge(SCOPES, -2)


@pytest.mark.parametrize("outcome", [Completed(), Failed(ERROR), Interrupted(), Lost("gone")])
def test_an_attempt_that_says_nothing_has_cost_what_it_took(outcome: Outcome) -> None:
    assert decide(a_job(cost=2), outcome, 0.0).charge is None


@pytest.mark.parametrize("outcome_kind", list(OutcomeKind))
def test_an_end_in_the_history_is_the_same_if_its_kind_is(outcome_kind: OutcomeKind) -> None:
    for recorded in OutcomeKind:
        assert is_same_end(outcome_kind, recorded, None) is (outcome_kind is recorded)
        assert is_same_end(outcome_kind, recorded, JobState.COMPLETED) is (outcome_kind is recorded)


@pytest.mark.parametrize("outcome_kind", list(OutcomeKind))
def test_without_a_row_in_the_history_the_state_of_the_job_tells_an_end(outcome_kind: OutcomeKind) -> None:
    left_a_row = outcome_kind in (OutcomeKind.FAILED, OutcomeKind.DISCARDED, OutcomeKind.LOST)
    is_soft = not left_a_row and outcome_kind is not OutcomeKind.COMPLETED

    assert is_same_end(outcome_kind, None, None) is False
    assert is_same_end(outcome_kind, None, JobState.COMPLETED) is (outcome_kind is OutcomeKind.COMPLETED)
    assert is_same_end(outcome_kind, None, JobState.SCHEDULED) is (outcome_kind is OutcomeKind.SNOOZED)
    for state in (JobState.PENDING, JobState.CANCELLED, JobState.DEAD, JobState.BLOCKED):
        assert is_same_end(outcome_kind, None, state) is is_soft
    is_handed_back = is_soft and outcome_kind is not OutcomeKind.SNOOZED
    assert is_same_end(outcome_kind, None, JobState.PENDING, is_early=True) is is_handed_back


@pytest.mark.parametrize(
    ("run_at", "started_at", "is_early"), [(7, 3, True), (8, 3, False), (5, None, False)]
)
def test_a_job_is_ready_early_if_a_snooze_from_its_start_would_last_longer(
    run_at: int, started_at: int | None, is_early: bool
) -> None:
    assert is_ready_early(decide(a_job(), Snoozed(5), 0.0), run_at, started_at, 100) is is_early


@pytest.mark.parametrize(("updated_at", "is_early"), [(100, True), (101, False)])
def test_a_job_is_ready_early_if_its_last_change_made_it_so(updated_at: int, is_early: bool) -> None:
    assert is_ready_early(decide(a_job(), Snoozed(5), 0.0), 100, 3, updated_at) is is_early


@pytest.mark.parametrize(("now", "changed"), [(100, 101), (101, 101), (200, 200)])
def test_a_promoted_job_has_changed_after_its_time(now: int, changed: int) -> None:
    assert promoted_at(now, 100) == changed
