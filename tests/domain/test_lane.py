"""The lanes that a program may serve."""

from __future__ import annotations

import pytest

from forebay.domain.lane import (
    capability_lane,
    is_limit_lane,
    lanes_for_program,
    limit_fairness_lane,
    limit_lane,
    limit_scope_of,
    park_detail,
    payload_lane,
    task_lane,
)


def test_a_program_serves_the_lanes_of_its_tasks_and_of_every_payload_it_reads() -> None:
    assert lanes_for_program(["a", "b"], 2) == {
        task_lane("a"),
        task_lane("b"),
        payload_lane(1),
        payload_lane(2),
    }


def test_a_task_cannot_be_called_like_a_payload() -> None:
    assert task_lane("payload:1") != payload_lane(1)
    assert task_lane("requires:blobs") != capability_lane("blobs")


@pytest.mark.parametrize(
    ("reason", "text"), [("no such task", "task:a: no such task"), (None, "task:a"), ("", "task:a")]
)
def test_the_reason_is_told_after_the_lane(reason: str | None, text: str) -> None:
    assert park_detail("task:a", reason) == text


def test_the_lane_of_a_limit_names_its_scope_and_is_no_other_lane() -> None:
    assert limit_scope_of(limit_lane("key:tenant:acme")) == "key:tenant:acme"
    assert is_limit_lane(limit_lane("task:a"))
    assert not any(map(is_limit_lane, lanes_for_program(["limit:a"], 1)))


def test_the_lane_of_a_share_behind_a_limit_names_the_scope_and_belongs_to_that_share_alone() -> None:
    lane = limit_fairness_lane("key:tenant:acme", "b")

    assert (is_limit_lane(lane), limit_scope_of(lane)) == (True, "key:tenant:acme")
    assert lane not in (limit_lane("key:tenant:acme"), limit_fairness_lane("key:tenant", "acme:b"))
