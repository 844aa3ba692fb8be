"""Maintenance tasks are done by the first caller, as long as there is something to do."""

from __future__ import annotations

import pytest

from forebay.operations.maintenance_task import MAX_BATCHES, MaintenanceTask, run_due_tasks
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock


class Counted:
    """A maintenance task that has a given number of batches to do."""

    def __init__(self, batches: int = 0, *, name: str = "count", is_ready: bool = True) -> None:
        self.name = name
        self.every_ms = 1_000
        self.is_ready = is_ready
        self.runs = 0
        self._left = batches

    def run(self, store: Store) -> bool:
        self.runs += 1
        self._left -= 1
        return self._left > 0


def test_a_maintenance_task_is_done_once_each_time(store: Store, clock: ManualClock) -> None:
    task = Counted()

    for _ in range(30):
        run_due_tasks(store, [task])
        clock.advance(ms=100)

    assert task.runs == 3


def test_two_runners_share_the_turns(store: Store, other_store: Store, clock: ManualClock) -> None:
    ours, theirs = Counted(), Counted()

    for _ in range(10):
        run_due_tasks(store, [ours])
        run_due_tasks(other_store, [theirs])
        clock.advance(ms=1_000)

    assert ours.runs + theirs.runs == 10


def test_maintenance_tasks_of_different_names_do_not_hold_each_other_up(store: Store) -> None:
    tasks = [Counted(name="one"), Counted(name="two")]

    run_due_tasks(store, tasks)

    assert [task.runs for task in tasks] == [1, 1]


@pytest.mark.parametrize(
    ("batches", "runs", "has_more"),
    [(0, 1, False), (1, 1, False), (3, 3, False), (10, 10, False), (11, MAX_BATCHES, True)],
)
def test_a_maintenance_task_goes_on_while_there_is_more_up_to_a_limit(
    store: Store, batches: int, runs: int, has_more: bool
) -> None:
    task = Counted(batches)

    assert run_due_tasks(store, [task]) == has_more
    assert task.runs == runs


def test_a_full_maintenance_task_does_not_keep_the_others_from_their_turn(store: Store) -> None:
    full, other = Counted(1_000, name="full"), Counted(name="other")

    assert run_due_tasks(store, [full, other])
    assert other.runs == 1


def test_who_must_hold_back_does_not_use_up_the_turn(store: Store, other_store: Store) -> None:
    quiet, ready = Counted(is_ready=False), Counted()

    run_due_tasks(store, [quiet])
    run_due_tasks(other_store, [ready])

    assert (quiet.runs, ready.runs) == (0, 1)


def test_the_counted_task_is_a_maintenance_task() -> None:
    task: MaintenanceTask = Counted()

    assert task.name == "count"
