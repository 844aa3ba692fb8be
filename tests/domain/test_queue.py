"""Queue settings: their defaults, their ranges, the modes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.queue import MAX_LENGTH, Queue, QueueMode, QueueSettings, QueueState, stagger_task_name
from forebay.domain.rank import STRICT_AGING_MS, Scoring
from forebay.errors import ConfigError, InvalidJob

NOW = 1_700_000_000_000
KEEP = 100 * 366 * DAY_MS

# The field, the least and the greatest value it takes.
RANGES: list[tuple[str, int, int]] = [
    ("weight", 1, 1_000),
    ("lease_ms", 1_000, DAY_MS),
    ("max_length", 1, MAX_LENGTH),
    ("min_priority", -100, 0),
    ("max_priority", 0, 100),
    ("default_priority", -100, 100),
    ("aging_ms", 1, STRICT_AGING_MS),
    ("deadline_horizon_ms", 8, 366 * DAY_MS),
    ("retry_penalty", 0, 1_000),
    ("deadline_weight", 0, 1_000),
    ("max_aging_bonus", 0, 1_000),
    ("keep_finished_ms", 0, KEEP),
    ("keep_dead_ms", 0, KEEP),
    ("keep_archive_ms", 0, KEEP),
]
ENDS = [(field, value) for field, *ends in RANGES for value in ends]
BEYOND = [
    (field, value) for field, least, most in RANGES for value in (least - 1, most + 1)
    # Beyond 0 the fault is named at the default priority, which no longer fits between the two.
    if (field, value) not in {("min_priority", 1), ("max_priority", -1)}
]  # fmt: skip


@pytest.mark.shows("R-QUEUE-16")
@pytest.mark.parametrize(("field", "value"), ENDS)
def test_the_ends_of_a_range_are_allowed(field: str, value: int) -> None:
    assert getattr(QueueSettings().with_changes({field: value}), field) == value


@pytest.mark.parametrize(("field", "value"), BEYOND)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"^queue settings: {field} must be"):
        QueueSettings().with_changes({field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight", "1"),
        ("weight", 1.5),
        ("weight", True),
        ("weight", None),
        ("archive", 1),
        ("archive", "yes"),
        ("max_aging_bonus", float("nan")),
        ("retry_penalty", float("inf")),
        ("retry_penalty", float("nan")),
        ("deadline_weight", None),
        ("colour", "red"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^queue settings: .*{field}"):
        QueueSettings().with_changes({field: value})


@pytest.mark.parametrize("value", [1.0, True, "1"])
def test_settings_made_directly_are_checked_too(value: Any) -> None:
    with pytest.raises(ConfigError, match="weight must be a whole number from 1 to 1000"):
        QueueSettings(weight=value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"min_priority": 10, "max_priority": 9, "default_priority": 9}, "max_priority"),
        ({"min_priority": 1}, "default_priority"),
        ({"max_priority": -1}, "default_priority"),
        ({"min_priority": 0, "max_priority": 10, "default_priority": 11}, "default_priority"),
    ],
)
def test_priorities_must_fit_together(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        QueueSettings().with_changes(changes)


def test_priorities_of_a_scale_from_0_to_10_can_be_set_at_once() -> None:
    settings = QueueSettings().with_changes({"min_priority": 0, "max_priority": 10, "default_priority": 5})

    assert (settings.min_priority, settings.max_priority, settings.default_priority) == (0, 10, 5)


@pytest.mark.parametrize("field", ["max_length", "max_aging_bonus"])
def test_none_takes_a_limit_away(field: str) -> None:
    assert getattr(QueueSettings().with_changes({field: None}), field) is None


def test_a_change_leaves_the_rest_and_the_old_settings_alone() -> None:
    before = QueueSettings(weight=3)

    after = before.with_changes({"lease_ms": 60_000})

    assert (after.weight, after.lease_ms) == (3, 60_000)
    assert before == QueueSettings(weight=3)


# ------------------------------------------------------------------ modes

OFF = {"max_aging_bonus": None, "retry_penalty": 0.0, "deadline_weight": 0.0}


@pytest.mark.shows("R-PRI-21")
@pytest.mark.parametrize(
    ("mode", "meaning"),
    [
        (
            QueueMode.AGING,
            {"aging_ms": 3_600_000, "max_aging_bonus": 50.0, "retry_penalty": 2.0, "deadline_weight": 30.0},
        ),
        (QueueMode.STRICT, {"aging_ms": STRICT_AGING_MS, **OFF}),
        (QueueMode.FIFO, {"aging_ms": 3_600_000, **OFF}),
    ],
)
@pytest.mark.parametrize("before", QueueMode)
def test_a_mode_means_this_whatever_was_set_before(
    mode: QueueMode, meaning: dict[str, object], before: QueueMode
) -> None:
    settings = (
        QueueSettings().with_changes({"mode": before, "aging_ms": 5}).with_changes({"mode": mode.value})
    )

    assert settings.mode is mode
    assert {name: getattr(settings, name) for name in meaning} == meaning


def test_a_single_setting_next_to_the_mode_wins() -> None:
    settings = QueueSettings().with_changes({"mode": "strict", "retry_penalty": 3})

    assert (settings.aging_ms, settings.retry_penalty) == (STRICT_AGING_MS, 3)


@pytest.mark.parametrize("mode", ["lifo", None, 7, ""])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ConfigError, match="QueueMode"):
        QueueSettings().with_changes({"mode": mode})


# ------------------------------------------------------------------ scoring


def test_scoring_speaks_in_thousandths() -> None:
    settings = QueueSettings(retry_penalty=2.5, deadline_weight=0.001, max_aging_bonus=33.3333)

    assert settings.scoring == Scoring(retry_penalty=2_500, deadline_weight=1, cap=33_333)


def test_without_a_greatest_bonus_there_is_no_cap() -> None:
    assert QueueSettings(max_aging_bonus=None).scoring.cap is None


@given(st.floats(0, 1_000), st.floats(0, 1_000))
def test_points_stay_in_the_range_that_rank_is_made_for(penalty: float, weight: float) -> None:
    scoring = QueueSettings(retry_penalty=penalty, deadline_weight=weight).scoring

    assert 0 <= scoring.retry_penalty <= 1_000_000
    assert 0 <= scoring.deadline_weight <= 1_000_000


# ------------------------------------------------------------------ the queue itself


@pytest.mark.parametrize(
    ("changes", "version", "reordering"),
    [
        ({}, 1, False),
        ({"weight": 2}, 1, False),
        ({"mode": "aging"}, 1, False),
        ({"aging_ms": 60_000}, 2, True),
        ({"mode": "fifo"}, 2, True),
        ({"deadline_horizon_ms": 60_000}, 2, True),
    ],
)
def test_only_a_change_of_scoring_starts_a_reordering(
    changes: dict[str, object], version: int, reordering: bool
) -> None:
    queue = Queue(name=QueueName("q"), created_at=1, updated_at=1)

    after = queue.with_settings(queue.settings.with_changes(changes), None, NOW)

    assert (after.scoring_version, after.is_rescoring, after.updated_at) == (version, reordering, NOW)
    assert (after.name, after.state, after.created_at) == ("q", QueueState.ACTIVE, 1)


def test_a_reordering_goes_on_when_something_else_is_changed() -> None:
    queue = Queue(name=QueueName("q"), is_rescoring=True, scoring_version=4)

    after = queue.with_settings(queue.settings, QueueState.PAUSED, NOW)

    assert (after.scoring_version, after.is_rescoring, after.state) == (4, True, QueueState.PAUSED)


@pytest.mark.shows("R-CFG-18")
def test_priorities_end_at_100_unless_set() -> None:
    assert QueueSettings().max_priority == 100


def test_without_a_new_state_the_old_one_stays() -> None:
    queue = Queue(name=QueueName("q"), state=QueueState.DRAINING)

    assert queue.with_settings(queue.settings, None, NOW).state is QueueState.DRAINING


@pytest.mark.parametrize(("wanted", "given"), [(None, 3), (-5, -5), (7, 7)])
def test_a_job_has_the_priority_it_wants_or_the_queues_own(wanted: int | None, given: int) -> None:
    settings = QueueSettings(min_priority=-5, max_priority=7, default_priority=3)

    assert Queue(name=QueueName("mail"), settings=settings).priority_of(wanted) == given


@pytest.mark.parametrize("wanted", [-6, 8])
def test_a_priority_out_of_the_queues_range_is_refused(wanted: int) -> None:
    queue = Queue(name=QueueName("mail"), settings=QueueSettings(min_priority=-5, max_priority=7))

    with pytest.raises(InvalidJob, match="outside the range of queue mail: -5 to 7") as caught:
        queue.priority_of(wanted)

    assert caught.value.field == "priority"


@pytest.mark.parametrize(
    ("state", "length", "objection"),
    [
        (QueueState.ACTIVE, 1, ""),
        (QueueState.PAUSED, 1, ""),
        (QueueState.PAUSED, None, ""),
        (QueueState.ACTIVE, 2, "queue mail is full: 2 pending jobs are allowed"),
        (QueueState.DRAINING, None, "queue mail is draining"),
        (QueueState.DROPPED, 0, "queue mail is dropped"),
    ],
)
def test_a_queue_takes_jobs_of_others_while_it_is_open_and_has_room(
    state: QueueState, length: int | None, objection: str
) -> None:
    queue = Queue(name=QueueName("mail"), state=state, settings=QueueSettings(max_length=2))

    assert queue.objection_to_move(None if length is None else lambda: length) == objection


@pytest.mark.shows("R-CFG-32")
@pytest.mark.parametrize(
    ("rate", "stagger"),
    [(None, None), (1, (1, 1_000)), (3, (1, 334)), (15, (1, 67)), (100, (10, 100)), (10_000, (1_000, 100))],
)
def test_a_staggered_queue_releases_a_tenth_of_its_rate_at_a_time(
    rate: int | None, stagger: tuple[int, int] | None
) -> None:
    assert QueueSettings(promote_per_second=rate).stagger == stagger
    assert stagger_task_name("mail") == "promote mail"


@pytest.mark.parametrize("rate", [0, 10_001, 1.5])
def test_a_rate_of_promotion_that_makes_no_sense_is_refused(rate: object) -> None:
    with pytest.raises(ConfigError, match="promote_per_second"):
        QueueSettings().with_changes({"promote_per_second": rate})
