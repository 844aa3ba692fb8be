"""The eight states, every pair of them, and the words of other queues."""

from __future__ import annotations

from itertools import product

import pytest

from forebay.domain.job_states import (
    FINAL,
    LIVE,
    TRANSITIONS,
    WAITING,
    JobState,
    Status,
    check_transition,
    is_final,
    parse_state,
    status_of,
)
from forebay.errors import ConfigError, IllegalTransition

# One row for each old state, one column for each new one, in the order of STATES; x is a legal move.
STATES = [
    JobState.SCHEDULED,
    JobState.BLOCKED,
    JobState.PENDING,
    JobState.RUNNING,
    JobState.RETRYING,
    JobState.COMPLETED,
    JobState.DEAD,
    JobState.CANCELLED,
]
TABLE = """
scheduled   . . x . . . x x
blocked     x . x . . . x x
pending     . . . x . . x x
running     x . x . x x x x
retrying    . . x . . . x x
completed   . . . . . . . .
dead        x x x . . . . .
cancelled   x x x . . . . .
"""
LEGAL = {
    (JobState(row.split()[0]), new)
    for row in TABLE.strip().splitlines()
    for new, mark in zip(STATES, row.split()[1:], strict=True)
    if mark == "x"
}
PAIRS = list(product(JobState, JobState))


def test_there_are_eight_states() -> None:
    assert list(JobState) == STATES


@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if pair in LEGAL])
def test_a_legal_move_is_allowed(old: JobState, new: JobState) -> None:
    check_transition(old, new)


@pytest.mark.shows("R-JOB-56")
@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if pair not in LEGAL])
def test_any_other_move_is_refused(old: JobState, new: JobState) -> None:
    with pytest.raises(IllegalTransition, match=f"^a {old} job cannot become {new}$"):
        check_transition(old, new)


def test_every_state_has_a_row_in_the_table() -> None:
    assert set(TRANSITIONS) == set(JobState)


def test_live_and_final_states_are_all_states() -> None:
    assert set(JobState) == LIVE | FINAL
    assert not LIVE & FINAL
    assert LIVE.difference(WAITING) == {JobState.RUNNING}


@pytest.mark.parametrize("state", JobState)
def test_final_are_completed_dead_and_cancelled(state: JobState) -> None:
    assert is_final(state) == (state in {"completed", "dead", "cancelled"})


@pytest.mark.shows("R-JOB-38")
@pytest.mark.parametrize(
    ("state", "status"),
    [
        (JobState.SCHEDULED, Status.PENDING),
        (JobState.BLOCKED, Status.PENDING),
        (JobState.PENDING, Status.PENDING),
        (JobState.RUNNING, Status.RUNNING),
        (JobState.RETRYING, Status.FAILED),
        (JobState.COMPLETED, Status.COMPLETED),
        (JobState.DEAD, Status.FAILED),
        (JobState.CANCELLED, Status.CANCELLED),
    ],
)
def test_each_state_belongs_to_one_of_the_coarse_five(state: JobState, status: Status) -> None:
    assert status_of(state) is status


@pytest.mark.parametrize("state", JobState)
def test_our_own_words_are_understood_in_any_case(state: JobState) -> None:
    assert parse_state(state.value) is state
    assert parse_state(f"  {state.value.upper()} ") is state


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("delayed", JobState.SCHEDULED),
        ("waiting", JobState.BLOCKED),
        ("queued", JobState.PENDING),
        ("ACTIVE", JobState.RUNNING),
        ("IN_PROGRESS", JobState.RUNNING),
        ("PROCESSING", JobState.RUNNING),
        ("RETRYABLE", JobState.RETRYING),
        ("RETRY_SCHEDULED", JobState.RETRYING),
        ("DEAD_LETTER", JobState.DEAD),
        ("DISCARDED", JobState.DEAD),
    ],
)
def test_words_of_other_queues_are_understood(word: str, state: JobState) -> None:
    assert parse_state(word) is state


@pytest.mark.parametrize("word", ["", "failed", "done", "pending!", "pen ding"])
def test_an_unknown_word_is_refused_with_the_known_ones(word: str) -> None:
    with pytest.raises(ConfigError, match="the states are scheduled, blocked, pending"):
        parse_state(word)
