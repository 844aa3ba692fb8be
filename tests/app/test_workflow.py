"""Workflows: chains, groups and joins, enqueued as a whole and run by workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay import (
    Forebay,
    InvalidJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    PermanentError,
    chain,
    current_job,
    group,
)
from forebay.app.chain_and_group import Step
from forebay.app.task import Task
from forebay.domain.dependencies import EdgeState
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, WaitTimeout


class Tasks:
    """An app with tasks that say in which order they ran."""

    def __init__(self, app: Forebay) -> None:
        self.app = app
        self.ran: list[Any] = []
        self.record: Task[[Any], Any] = app.task(self._record)
        self.fail: Task[[Any], None] = app.task(self._fail)
        self.gather: Task[[], list[Any]] = app.task(self._gather)

    def _record(self, what: Any) -> Any:
        self.ran.append(what)
        return what

    def _fail(self, what: Any) -> None:
        self.ran.append(what)
        raise PermanentError("it broke")

    def _gather(self) -> list[Any]:
        return [
            type(result).__name__ if isinstance(result, Exception) else result
            for result in current_job().parent_results()
        ]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


@pytest.fixture
def tasks(app: Forebay) -> Tasks:
    return Tasks(app)


@pytest.mark.shows("R-DEP-09", "R-DEP-18", "R-EXT-02")
def test_a_chain_with_a_group_runs_in_its_order_and_a_join_has_the_results(
    app: Forebay, tasks: Tasks
) -> None:
    record, gather = tasks.record, tasks.gather
    flow = app.workflow(
        chain(record.job("first"), group(record.job(1), record.job(2), record.job(3)), gather.job())
    )

    done = flow.enqueue()
    with app.run_worker(threads=2):
        [gathered] = done.results(timeout=120)

    assert gathered == [1, 2, 3]
    assert tasks.ran[0] == "first"
    assert sorted(tasks.ran[1:]) == [1, 2, 3]
    assert done.wait(timeout=120).completed == done.progress().total == 5
    assert done.progress().is_final


@pytest.mark.shows("R-DEP-01", "R-DEP-10")
def test_a_job_may_depend_on_stored_jobs_by_handle_or_id(app: Forebay, tasks: Tasks) -> None:
    one, other = tasks.record.enqueue("one"), tasks.record.enqueue("other")

    join = tasks.gather.using(depends_on=[other, one.id]).enqueue()

    assert join.refresh().state is JobState.BLOCKED
    assert [edge.parent for edge in join.parents()] == [other.id, one.id]
    assert [edge.child for edge in one.dependants()] == [join.id]
    with app.run_worker(threads=2):
        assert join.result(timeout=120) == ["other", "one"]
    assert [edge.state for edge in join.parents()] == [EdgeState.MET, EdgeState.MET]


@pytest.mark.shows("R-DEP-07", "R-DEP-19", "R-DEP-18")
def test_a_callback_runs_at_the_end_of_a_batch_whatever_became_of_it(app: Forebay, tasks: Tasks) -> None:
    flow = app.workflow()
    batch = flow.add(
        group(tasks.record.job(1), tasks.fail.job(2), chain(tasks.fail.job(3), tasks.record.job(4)))
    )
    flow.add(tasks.gather.job(), after=batch, on_failure="ignore", name="callback")

    done = flow.enqueue()
    with app.run_worker(threads=2):
        assert done.last[0].result(timeout=120) == [1, "JobFailed", "JobCancelled"]

    progress = done.wait(timeout=120)
    assert (progress.completed, progress.dead, progress.cancelled) == (2, 2, 1)


@pytest.mark.shows("R-DEP-04", "R-EDGE-47", "R-TEST-59")
def test_a_cycle_is_refused_and_named(app: Forebay, tasks: Tasks) -> None:
    flow = app.workflow()
    flow.add(tasks.record.job(1), name="a", after="c")
    flow.add(tasks.record.job(2), name="b", after="a")
    flow.add(tasks.record.job(3), name="c", after="b")

    with pytest.raises(InvalidJob, match="a -> b -> c -> a"):
        flow.enqueue()
    with pytest.raises(InvalidJob, match="x -> x"):
        app.enqueue_many([tasks.record.using(id="x", depends_on=["x"]).job(1)])
    with pytest.raises(InvalidJob, match="x -> y -> x"):
        app.enqueue_many(
            [
                tasks.record.using(id="x", depends_on=["y"]).job(1),
                tasks.record.using(id="y", depends_on=["x"]).job(1),
            ]
        )

    assert app.search().jobs == ()


def test_jobs_of_one_call_may_name_each_other_by_ids_in_any_order(app: Forebay, tasks: Tasks) -> None:
    child, parent = app.enqueue_many(
        [
            tasks.record.using(id="child", depends_on="parent").job("child"),
            tasks.record.using(id="parent").job("parent"),
        ]
    )

    assert (child.id, parent.id) == ("child", "parent")
    assert child.refresh().state is JobState.BLOCKED


def test_steps_are_checked_when_they_are_added(app: Forebay, tasks: Tasks) -> None:
    flow = app.workflow()
    step: Step = tasks.record.job(1)
    flow.add(step, name="a")

    with pytest.raises(InvalidJob, match="two steps called a"):
        flow.add(step, name="a")
    with pytest.raises(InvalidJob, match="a job made by"):
        flow.add("record")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="runs after"):
        flow.add(step, after=[1])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="on_failure must be one of"):
        flow.add(step, on_failure="explode")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_failure must be one of"):
        tasks.record.using(on_failure="explode")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="depends_on"):
        tasks.record.using(depends_on=7)  # type: ignore[arg-type]
    flow.add(step, after="absent")
    with pytest.raises(InvalidJob, match="no step called absent"):
        flow.enqueue()


def test_empty_groups_are_passed_over(app: Forebay, tasks: Tasks) -> None:
    flow = app.workflow()
    nothing = flow.add(group())
    flow.add(tasks.record.job("alone"), after=nothing)
    flow.add(chain(tasks.record.job(1), group(), tasks.record.job(2)))

    done = flow.enqueue()

    assert [handle.refresh().state for handle in done.jobs] == [
        JobState.PENDING,
        JobState.PENDING,
        JobState.BLOCKED,
    ]


@pytest.mark.shows("R-CANCEL-08", "R-DEP-13")
def test_a_workflow_is_cancelled_as_a_whole_or_from_one_job_on(app: Forebay, tasks: Tasks) -> None:
    whole = app.workflow(chain(tasks.record.job(1), tasks.record.job(2), tasks.record.job(3))).enqueue()
    part = app.workflow(chain(tasks.record.job(1), tasks.record.job(2), on_failure="hold")).enqueue()

    assert whole.cancel("not needed") == 3
    part.jobs[0].cancel(dependants=True)

    assert whole.progress().cancelled == 3
    assert part.progress().cancelled == 2
    with pytest.raises(JobCancelled):
        part.results(timeout=0)


def test_waiting_for_a_workflow_ends_with_the_patience(app: Forebay, tasks: Tasks) -> None:
    done = app.workflow(tasks.record.job(1)).enqueue()

    with pytest.raises(WaitTimeout, match="the workflow goes on"):
        done.wait(timeout=0)

    assert done.progress().waiting == 1


@pytest.mark.shows("R-PRI-22", "R-EDGE-43", "R-DEP-12")
def test_what_a_job_waits_for_inherits_its_priority(app: Forebay, tasks: Tasks) -> None:
    app.client.write(lambda store: store.save_queue(app.default_queue, {"max_priority": 50}))
    grandparent = tasks.record.enqueue(1)
    parent = tasks.record.using(depends_on=grandparent).enqueue(2)
    flow = app.workflow()
    first = flow.add(tasks.record.job(3))
    flow.add(tasks.record.using(priority=40).job(4), after=[first, parent])

    done = flow.enqueue()

    assert [handle.refresh().priority for handle in (*done.jobs, parent, grandparent)] == [40, 40, 40, 40]


@pytest.mark.shows("R-PRI-22")
@pytest.mark.parametrize("priorities", [(40, 10), (10, 40)])
def test_what_several_jobs_wait_for_at_the_end_inherits_the_highest_of_their_priorities(
    app: Forebay, tasks: Tasks, priorities: tuple[int, int]
) -> None:
    app.client.write(lambda store: store.save_queue(app.default_queue, {"max_priority": 50}))
    grandparent = tasks.record.enqueue(1)
    parents = [tasks.record.using(depends_on=grandparent).enqueue(number) for number in (2, 3)]
    flow = app.workflow()
    for parent, priority in zip(parents, priorities, strict=True):
        flow.add(tasks.record.using(priority=priority).job(4), after=[parent])

    flow.enqueue()

    assert [parent.refresh().priority for parent in parents] == [*priorities]
    assert grandparent.refresh().priority == 40


def test_a_workflow_is_stored_in_a_transaction_of_the_caller(
    app: Forebay, tasks: Tasks, tmp_path: Path
) -> None:
    import sqlite3  # noqa: PLC0415

    app.counts()
    tasks.record.enqueue(0)
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with connection:
        connection.execute("begin")
        done = app.workflow(chain(tasks.record.job(1), tasks.record.job(2))).enqueue_tx(connection)
    connection.close()

    assert [handle.refresh().state for handle in done.jobs] == [JobState.PENDING, JobState.BLOCKED]


async def _run_async(app: Forebay, tasks: Tasks) -> list[Any]:
    @app.task
    async def gather_async() -> list[Any]:
        return await current_job().parent_results_async()

    flow = app.workflow(chain(group(tasks.record.job(1), tasks.record.job(2)), gather_async.job()))
    done = await flow.enqueue_async()
    join = await tasks.gather.using(depends_on=done.last).enqueue_async()
    assert [edge.parent for edge in await join.parents_async()] == [done.last[0].id]
    assert len(await done.last[0].dependants_async()) == 1
    assert (await done.wait_async(timeout=120)).is_final
    await join.wait_async(timeout=120)
    assert await done.cancel_async() == 0
    assert (await done.progress_async()).completed == 3
    return await done.results_async(timeout=120)


def test_all_of_it_works_on_an_event_loop(app: Forebay, tasks: Tasks) -> None:
    with app.run_worker(threads=2):
        assert asyncio.run(_run_async(app, tasks)) == [[1, 2]]


def test_results_of_forgotten_and_failed_parents_are_errors(app: Forebay, tasks: Tasks) -> None:
    failed = tasks.fail.enqueue(1)
    gone = tasks.record.enqueue(2)
    kinds: list[type] = []

    @app.task
    def look() -> None:
        app.client.write(lambda store: store.delete([gone.id]))
        kinds.extend(type(result) for result in current_job().parent_results())

    with app.run_worker(threads=1):
        look.using(depends_on=[failed, gone], on_failure="ignore").enqueue().result(timeout=120)

    assert kinds == [JobFailed, JobNotFound]
