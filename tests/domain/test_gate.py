"""Which gates a program may pass."""

from __future__ import annotations

import pytest

from forebay.domain.gate import (
    gates_of,
    is_limit_gate,
    lane_gate,
    limit_gate,
    needs_gate,
    payload_gate,
    scope_behind,
    task_gate,
    why_held,
)


def test_a_program_passes_the_gates_of_its_tasks_and_of_every_payload_it_reads() -> None:
    assert gates_of(["a", "b"], 2) == {task_gate("a"), task_gate("b"), payload_gate(1), payload_gate(2)}


def test_a_task_cannot_be_called_like_a_payload() -> None:
    assert task_gate("payload:1") != payload_gate(1)
    assert task_gate("needs:blobs") != needs_gate("blobs")


@pytest.mark.parametrize(
    ("reason", "said"), [("no such task", "task:a: no such task"), (None, "task:a"), ("", "task:a")]
)
def test_the_reason_is_told_after_the_gate(reason: str | None, said: str) -> None:
    assert why_held("task:a", reason) == said


def test_the_gate_of_a_limit_names_its_scope_and_is_no_other_gate() -> None:
    assert scope_behind(limit_gate("key:tenant:acme")) == "key:tenant:acme"
    assert is_limit_gate(limit_gate("task:a"))
    assert not any(map(is_limit_gate, gates_of(["limit:a"], 1)))


def test_the_lane_of_a_share_behind_a_limit_names_the_scope_and_belongs_to_that_share_alone() -> None:
    lane = lane_gate("key:tenant:acme", "b")

    assert (is_limit_gate(lane), scope_behind(lane)) == (True, "key:tenant:acme")
    assert lane not in (limit_gate("key:tenant:acme"), lane_gate("key:tenant", "acme:b"))
