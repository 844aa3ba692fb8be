"""Graphs of jobs: their order, their cycles, priorities, and what the end of a job means for others."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.dependencies import (
    AFFECTED_STATES,
    UNMET_STATES,
    DependencyEvent,
    Edge,
    EdgeState,
    by_parent,
    due_on_release,
    edge_transition,
    is_past_retention,
    missing_parent,
    parent_reason,
    redact_parent,
    reopen_edge_state,
    starting_state,
)
from forebay.domain.dependency_graph import (
    dependencies_of,
    inherit_priorities,
    missing_batch_parent,
    sort_parents_first,
    sort_topologically,
)
from forebay.domain.job import MAX_DEPENDENCIES, Dependency, JobId, NewJob, OnFailure, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue, QueueSettings
from forebay.domain.ulid import encode_ulid
from forebay.errors import InvalidJob
from tests.domain.sample_jobs import a_job

A, B = JobId("a"), JobId("b")


def job(*parents: JobId | int, **changes: object) -> NewJob:
    return NewJob(task="t", depends_on=dependencies_of(parents), **changes)  # type: ignore[arg-type]


@pytest.mark.shows("R-DEP-02", "R-DEP-06")
def test_what_the_end_of_a_parent_means_for_a_child() -> None:
    table = {
        (event, on_failure): edge_transition(event, on_failure)
        for event in DependencyEvent
        for on_failure in OnFailure
    }

    assert {each.edge for (how, _), each in table.items() if how is DependencyEvent.COMPLETED} == {
        EdgeState.MET
    }
    for failed in (DependencyEvent.DEAD, DependencyEvent.CANCELLED):
        assert table[failed, OnFailure.CANCEL] == (EdgeState.FAILED, JobState.CANCELLED)
        assert table[failed, OnFailure.FAIL] == (EdgeState.FAILED, JobState.DEAD)
        assert table[failed, OnFailure.IGNORE] == (EdgeState.MET, None)
        assert table[failed, OnFailure.HOLD] == (EdgeState.HELD, None)
    assert table[DependencyEvent.DELETED, OnFailure.HOLD] == (EdgeState.FAILED, JobState.CANCELLED)
    assert {table[DependencyEvent.CANCEL, each].child for each in OnFailure} == {JobState.CANCELLED}
    assert {table[DependencyEvent.REVIVED, each].edge for each in OnFailure} == {EdgeState.OPEN}


@pytest.mark.parametrize("event", DependencyEvent)
@pytest.mark.parametrize("on_failure", OnFailure)
def test_what_was_dealt_with_is_not_met_again(event: DependencyEvent, on_failure: OnFailure) -> None:
    assert edge_transition(event, on_failure).edge not in AFFECTED_STATES[event]


def test_a_new_edge_stands_as_its_parent_does() -> None:
    assert starting_state(JobState.COMPLETED, OnFailure.FAIL) is EdgeState.MET
    assert starting_state(JobState.RUNNING, OnFailure.IGNORE) is EdgeState.OPEN
    assert starting_state(JobState.DEAD, OnFailure.IGNORE) is EdgeState.MET
    assert starting_state(JobState.CANCELLED, OnFailure.HOLD) is EdgeState.HELD
    assert starting_state(JobState.DEAD, OnFailure.CANCEL) is EdgeState.OPEN
    assert EdgeState.HELD in UNMET_STATES


def test_a_released_job_is_due_at_its_time_and_without_a_delay_at_once() -> None:
    stored = {"created_at": 1_000, "updated_at": 1_000}
    assert due_on_release(a_job(run_at=5_000, **stored), 2_000) == 5_000
    assert due_on_release(a_job(run_at=5_000, **stored), 6_000) == 6_000
    assert due_on_release(a_job(run_at=1_000, **stored), 2_000) == 2_000
    # The clock was set back after it was stored, or after it was revived.
    assert due_on_release(a_job(run_at=1_000, **stored), 10) == 10
    assert due_on_release(a_job(run_at=3_000, created_at=1_000, updated_at=3_000), 2_000) == 2_000


def test_reasons_name_the_parent() -> None:
    assert parent_reason(DependencyEvent.DEAD, A) == "a, which it depends on, is dead"
    assert parent_reason(DependencyEvent.DELETED, A) == "a, which it depends on, was deleted"
    assert parent_reason(DependencyEvent.CANCEL, A) == "cancelled with a, which it depends on"


def test_a_reason_can_be_told_without_the_name_of_the_parent() -> None:
    resolved = [
        redact_parent(parent_reason(after, A)) for after in (DependencyEvent.DEAD, DependencyEvent.CANCEL)
    ]

    assert resolved == ["a job, which it depends on, is dead", "cancelled with a job, which it depends on"]
    assert redact_parent("a was too slow") == "a was too slow"
    assert "allow_missing=True" in str(missing_parent("t", A, False))
    assert "not older" in str(missing_parent("t", A, True))
    assert "2 places before" in str(missing_batch_parent("t", 2))


def test_an_id_is_forgotten_when_it_is_older_than_what_is_kept() -> None:
    old = JobId(encode_ulid(1_000 << 80))

    assert is_past_retention(old, 500, 1_500)
    assert not is_past_retention(old, 501, 1_500)
    assert not is_past_retention(old, 0, 9_999)
    assert not is_past_retention(A, 1, 9_999)


def test_edges_are_listed_by_parent() -> None:
    edge = Edge(child=B, position=3, parent=A, on_failure=OnFailure.HOLD, state=EdgeState.OPEN)

    assert by_parent(edge) == (A, B, 3)


@pytest.mark.shows("R-DEP-04", "R-EDGE-47")
def test_a_cycle_is_named_in_the_direction_in_which_its_jobs_would_run() -> None:
    with pytest.raises(InvalidJob, match="a -> b -> c -> a"):
        sort_parents_first({"x": ["c"], "a": ["c"], "b": ["a"], "c": ["b", "y"], "y": []})
    with pytest.raises(InvalidJob, match="a -> a"):
        sort_parents_first({"a": ["a"]})
    with pytest.raises(InvalidJob, match=r"\.\.\."):
        sort_parents_first({at: [(at + 1) % 50] for at in range(50)})
    with pytest.raises(InvalidJob, match="f -> g -> f"):
        sort_parents_first({"e": ["g"], "f": ["g"], "g": ["f"]})


@given(
    st.integers(1, 25).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(0, size - 1), max_size=3, unique=True), min_size=size, max_size=size
        )
    )
)
@pytest.mark.shows("R-TEST-59")
def test_any_graph_is_put_in_order_or_has_a_cycle(graph: list[list[int]]) -> None:
    parents = dict(enumerate(graph))
    try:
        order = sort_parents_first(parents)
    except InvalidJob as refused:
        words = str(refused).partition(": ")[2].split(" -> ")
        assert words[0] == words[-1]
        if "..." not in words:
            assert all(int(parent) in parents[int(child)] for parent, child in pairwise(words))
        return

    assert sorted(order) == sorted(parents)
    place = {node: at for at, node in enumerate(order)}
    assert all(place[parent] < place[node] for node, of in parents.items() for parent in of)


def test_jobs_that_name_each_other_are_arranged_parents_first() -> None:
    child, parent, alone = job(JobId("p"), A, id="c"), job(id="p"), job()

    placed, went = sort_topologically([child, parent, alone])

    assert [placed[place] is given for place, given in zip(went, [child, parent, alone], strict=True)] == [
        False,
        True,
        True,
    ]
    assert placed[went[0]].depends_on == (Dependency(went[0] - went[1]), Dependency(A))
    assert sort_topologically([alone, parent]) == ([alone, parent], [0, 1])


def test_places_that_are_counted_already_stay_right() -> None:
    first, second = job(), job(1)

    placed, went = sort_topologically([first, second])

    assert (placed, went) == ([first, second], [0, 1])
    with pytest.raises(InvalidJob, match=r"t \(1\) -> c -> t \(1\)"):
        sort_topologically([job(JobId("c")), job(1, id="c")])


@pytest.mark.shows("R-PRI-22", "R-EDGE-43")
def test_parents_get_the_highest_priority_of_what_waits_for_them() -> None:
    narrow = QueueName("narrow")
    queues = {narrow: Queue(name=narrow, settings=QueueSettings(max_priority=5, default_priority=3))}
    graph = [job(), job(1, queue=narrow), job(2, priority=4), job(2, 1, B, priority=9), job(priority=1)]

    raised = inherit_priorities(graph, queues)

    assert [each.priority for each in raised] == [9, 5, 9, 9, 1]


@pytest.mark.parametrize(
    "needs",
    [
        (Dependency(JobId("")),),
        (Dependency(0),),
        (Dependency(A), Dependency(A, OnFailure.HOLD)),
        tuple(Dependency(back) for back in range(1, MAX_DEPENDENCIES + 2)),
    ],
)
def test_needs_that_cannot_be_are_refused(needs: tuple[Dependency, ...]) -> None:
    with pytest.raises(InvalidJob, match="depends"):
        NewJob(task="t", depends_on=needs)


@pytest.mark.parametrize(
    ("parent", "with_parent", "alone"),
    [
        (None, EdgeState.MET, EdgeState.MET),
        (JobState.COMPLETED, EdgeState.MET, EdgeState.MET),
        (JobState.DEAD, EdgeState.HELD, EdgeState.MET),
        (JobState.CANCELLED, EdgeState.HELD, EdgeState.MET),
        (JobState.RUNNING, EdgeState.OPEN, EdgeState.OPEN),
        (JobState.PENDING, EdgeState.OPEN, EdgeState.OPEN),
    ],
)
def test_a_revived_job_waits_for_what_can_still_complete(
    parent: JobState | None, with_parent: EdgeState, alone: EdgeState
) -> None:
    assert reopen_edge_state(parent, with_parent=True) is with_parent
    assert reopen_edge_state(parent, with_parent=False) is alone
