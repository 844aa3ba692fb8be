"""Weighted fair queueing: whose turn it is, and how many jobs of each are next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.fairness import (
    VIRTUAL_TIME_STEP,
    FairnessKey,
    allot,
    fairness_key_of,
    fairness_lane,
    interleave,
    is_fairness_lane,
    joining_virtual_time,
    lane_for_keys,
    resuming_virtual_time,
    virtual_time_step,
)
from forebay.domain.queue import QueueSettings
from forebay.errors import ConfigError

NAMES = st.sampled_from("abcdef")


def test_a_lane_names_its_fairness_key() -> None:
    assert fairness_key_of(fairness_lane("acme:1")) == "acme:1"
    assert (lane_for_keys({"fairness": "acme", "tenant": "x"}), lane_for_keys({"tenant": "x"})) == (
        "fairness:acme",
        None,
    )
    assert [is_fairness_lane(lane) for lane in ("fairness:a", "limit:key:fairness:a", "task:fairness:")] == [
        True,
        False,
        False,
    ]


def test_a_heavier_fairness_key_takes_shorter_steps() -> None:
    assert (virtual_time_step({"gold": 4}, "gold"), virtual_time_step({"gold": 4}, "trial")) == (
        VIRTUAL_TIME_STEP // 4,
        VIRTUAL_TIME_STEP,
    )


def test_who_had_nothing_begins_a_step_behind_the_first() -> None:
    assert joining_virtual_time({}, "a", None) == VIRTUAL_TIME_STEP
    assert joining_virtual_time({"a": 2}, "a", 700) == 700 + VIRTUAL_TIME_STEP // 2


def test_a_fairness_key_that_was_held_up_by_a_limit_goes_on_at_most_a_step_from_the_first() -> None:
    assert resuming_virtual_time({}, "a", 7 * VIRTUAL_TIME_STEP, None) == 7 * VIRTUAL_TIME_STEP
    assert (
        resuming_virtual_time({}, "a", 7 * VIRTUAL_TIME_STEP, 7 * VIRTUAL_TIME_STEP + 1)
        == 7 * VIRTUAL_TIME_STEP
    )
    assert (
        resuming_virtual_time({"a": 2}, "a", VIRTUAL_TIME_STEP, 9 * VIRTUAL_TIME_STEP)
        == 9 * VIRTUAL_TIME_STEP - VIRTUAL_TIME_STEP // 2
    )
    assert (
        resuming_virtual_time({"a": 2}, "a", 9 * VIRTUAL_TIME_STEP, VIRTUAL_TIME_STEP)
        == VIRTUAL_TIME_STEP + VIRTUAL_TIME_STEP // 2
    )


def test_room_goes_to_those_whose_turn_it_is() -> None:
    keys = [
        FairnessKey("late", 5 * VIRTUAL_TIME_STEP),
        FairnessKey("early", VIRTUAL_TIME_STEP),
        FairnessKey("heavy", VIRTUAL_TIME_STEP),
    ]

    assert allot(keys, {"heavy": 3}, 8, {}) == {"early": 2, "heavy": 6}
    assert allot(keys, {}, 20, {"early": 1, "heavy": 0}) == {"early": 1, "late": 19}
    assert allot(keys, {}, 4, dict.fromkeys(["late", "early", "heavy"], 1)) == dict.fromkeys(
        ["early", "heavy", "late"], 1
    )
    assert allot([], {}, 3, {}) == allot(keys, {}, 0, {}) == {}


def test_jobs_come_in_the_order_of_turns() -> None:
    keys = [
        FairnessKey("late", 4 * VIRTUAL_TIME_STEP),
        FairnessKey("early", VIRTUAL_TIME_STEP),
        FairnessKey("heavy", 2 * VIRTUAL_TIME_STEP),
    ]

    order = interleave(keys, {"heavy": 2}, {"early": 2, "heavy": 3})

    assert order == [("early", 0), ("early", 1), ("heavy", 0), ("heavy", 1), ("heavy", 2)]


@pytest.mark.shows("R-PRI-36")
@given(
    st.dictionaries(NAMES, st.integers(1, 1_000), min_size=2),
    st.lists(st.integers(1, 300), min_size=1, max_size=8),
)
def test_fairness_keys_that_always_have_jobs_get_what_their_weights_say_whatever_the_room(
    weights: dict[str, int], rooms: list[int]
) -> None:
    turns = {key: joining_virtual_time(weights, key, None) for key in weights}
    had = dict.fromkeys(weights, 0)
    for room in rooms:
        given_now = allot([FairnessKey(*one) for one in turns.items()], weights, room, {})
        assert sum(given_now.values()) == room
        for key, jobs in given_now.items():
            had[key] += jobs
            turns[key] += jobs * virtual_time_step(weights, key)

    parts = [(had[key] / weight, weight) for key, weight in weights.items()]
    # Steps are whole numbers, so a weight of 1000 may be off by a thousandth.
    assert all(mine >= theirs * 0.998 - 1 / weight - 0.002 for mine, weight in parts for theirs, _ in parts)


@pytest.mark.parametrize(
    "weights",
    [
        {"a": 0},
        {"a": 1_001},
        {"a": 1.5},
        {"a": "2"},
        {"": 1},
        {"a\n": 1},
        {str(n): 1 for n in range(1_001)},
        7,
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: Any) -> None:
    with pytest.raises(ConfigError):
        QueueSettings().with_changes({"fairness_weights": weights})


def test_the_weights_of_a_queue_are_replaced_as_a_whole() -> None:
    settings = (
        QueueSettings()
        .with_changes({"fairness_weights": {"gold": 3}})
        .with_changes({"fairness_weights": {"silver": 2}})
    )

    assert settings.fairness_weights == {"silver": 2}
    assert settings.scoring == QueueSettings().scoring
