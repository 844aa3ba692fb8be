"""`app.dead`: the dead letters of an app by what they died of, and ways to put them back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay import Forebay, JobHandle
from forebay.domain.gradual_revive import GradualReviveState
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, GradualReviveNotFound, InvalidJob
from forebay.operations.job_search import count_jobs
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from tests.worker.support import eventually

WORKER = WorkerId("w1")
MAIL = QueueName("mail")


def died_of(app: Forebay, *messages: str) -> list[JobHandle[str]]:
    """A dead letter for each of these messages."""
    handles = [app.task(name=f"send.{n}", queue="mail")(send).enqueue() for n, _ in enumerate(messages)]

    def run(store: Store) -> None:
        jobs = store.settle_and_claim(WORKER, claims=[QueueClaim(MAIL, 100)], room=100).jobs
        ends = [
            decide(job, Discarded(AttemptError(type="Boom", message=message)), 0.0)
            for job, message in zip(jobs, messages, strict=True)
        ]
        store.settle_and_claim(WORKER, ends)

    app.client.write(run)
    return handles


def send() -> str:
    return "sent"


@pytest.mark.shows("R-DLQ-21")
def test_dead_letters_are_grouped_revived_and_purged_by_group(app: Forebay) -> None:
    handles = died_of(app, "order 1", "order 2", "no door", "order 3")

    found = app.dead_letters.failure_groups()
    orders, door = found.groups

    assert (found.jobs, found.is_complete) == (4, True)
    assert (orders.message, orders.jobs, orders.tasks) == (
        "Boom: order #",
        3,
        {"send.3": 1, "send.1": 1, "send.0": 1},
    )
    assert app.dead_letters.failure_groups(JobQuery(tasks=("send.2",))).groups == (door,)
    assert app.client.read(lambda reader: count_jobs(reader, JobQuery(), orders.id)) == (3, True)
    assert app.dead_letters.revive(JobQuery(tasks=("send.0",)), group=orders.id) == 1
    assert app.dead_letters.revive(group=door.id) == 1
    assert app.dead_letters.purge(group=orders.id) == 2
    assert [handle.refresh().state for handle in (handles[0], handles[2])] == [JobState.PENDING] * 2
    assert app.dead_letters.failure_groups().groups == ()
    with pytest.raises(ConfigError, match="no failure group"):
        app.dead_letters.revive(group="order")


def test_a_count_of_a_group_says_where_it_has_stopped(app: Forebay, monkeypatch: pytest.MonkeyPatch) -> None:
    died_of(app, "order 1", "order 2", "order 3")
    [group] = app.dead_letters.failure_groups().groups

    monkeypatch.setattr("forebay.operations.job_search.EXACT_UP_TO", 2)

    assert app.client.read(lambda reader: count_jobs(reader, JobQuery(), group.id)) == (2, False)


@pytest.mark.shows("R-RETRY-45")
def test_retry_stats_tell_how_jobs_of_a_task_have_fared(app: Forebay) -> None:
    died_of(app, "order 1", "order 2")

    found = app.dead_letters.retry_stats("send.1")

    assert (found.jobs, found.retried, found.recovered, found.dead) == (1, 1, 0, 1)
    assert (found.success_rate, found.average_attempts) == (0.0, 1.0)
    assert (found.errors, found.is_complete) == ({"Boom: order #": 1}, True)
    assert asyncio.run(app.dead_letters.retry_stats_async(newest=1)).is_complete is False


def test_gradual_revives_are_started_and_controlled_by_an_app(app: Forebay) -> None:
    died_of(app, "order 1")
    [group] = app.dead_letters.failure_groups().groups

    revive = app.dead_letters.revive_gradually(
        group=group.id, initial_batch=5, every=2, max_failure_percent=10
    )

    assert (revive.plan.initial_batch, revive.plan.every_ms, revive.plan.max_failure_percent) == (
        5,
        2_000,
        10,
    )
    assert app.dead_letters.pause_revive(revive.name).state is GradualReviveState.PAUSED
    assert app.dead_letters.resume_revive(revive.name).state is GradualReviveState.RUNNING
    assert app.dead_letters.stop_revive(revive.name).state is GradualReviveState.STOPPED
    assert [one.state for one in app.dead_letters.gradual_revives()] == [GradualReviveState.STOPPED]
    with pytest.raises(GradualReviveNotFound):
        app.dead_letters.gradual_revive("absent")
    with pytest.raises(InvalidJob, match="every must be from 1 to"):
        app.dead_letters.revive_gradually(every=0.5)


def test_coroutines_group_and_control_alike(app: Forebay) -> None:
    died_of(app, "order 1")

    asyncio.run(_controlled(app))


async def _controlled(app: Forebay) -> None:
    [group] = (await app.dead_letters.failure_groups_async()).groups
    again = await app.dead_letters.revive_gradually_async(group=group.id)
    assert (await app.dead_letters.pause_revive_async(again.name)).state is GradualReviveState.PAUSED
    assert (await app.dead_letters.resume_revive_async(again.name)).state is GradualReviveState.RUNNING
    assert (await app.dead_letters.stop_revive_async(again.name)).state is GradualReviveState.STOPPED
    assert (await app.dead_letters.gradual_revive_async(again.name)).state is GradualReviveState.STOPPED
    assert len(await app.dead_letters.gradual_revives_async()) == 1
    assert await app.dead_letters.revive_async(group=group.id) == 1
    assert await app.dead_letters.purge_async() == 0


@pytest.mark.shows("R-DLQ-21")
def test_a_worker_goes_on_with_a_gradual_revive_until_all_is_done(tmp_path: Path) -> None:
    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as app:
        handles = died_of(app, *["order 1"] * 3)
        [group] = app.dead_letters.failure_groups().groups
        revive = app.dead_letters.revive_gradually(group=group.id, initial_batch=3, every=1)

        with app.run_worker():
            eventually(lambda: not app.dead_letters.gradual_revive(revive.name).is_open)

        done = app.dead_letters.gradual_revive(revive.name)
        assert (done.state, done.batches, done.completed_jobs) == (GradualReviveState.COMPLETED, 1, 3)
        assert [handle.result() for handle in handles] == ["sent"] * 3
