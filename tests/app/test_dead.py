"""`app.dead`: the dead letters of an app by what they died of, and ways to put them back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay import Forebay, JobHandle
from forebay.app.searching import counted
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.query import JobQuery
from forebay.domain.ramp import RampState
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, InvalidJob, RampNotFound
from forebay.stores.protocol import Store, Want
from tests.worker.support import eventually

WORKER = WorkerId("w1")
MAIL = QueueName("mail")


def died_of(app: Forebay, *messages: str) -> list[JobHandle[str]]:
    """A dead letter for each of these messages."""
    handles = [app.task(name=f"send.{n}", queue="mail")(send).enqueue() for n, _ in enumerate(messages)]

    def run(store: Store) -> None:
        jobs = store.exchange(WORKER, wants=[Want(MAIL, 100)], room=100).jobs
        ends = [
            decide(job, Discarded(AttemptError(type="Boom", message=message)), 0.0)
            for job, message in zip(jobs, messages, strict=True)
        ]
        store.exchange(WORKER, ends)

    app.client.write(run)
    return handles


def send() -> str:
    return "sent"


@pytest.mark.shows("R-DLQ-21")
def test_dead_letters_are_grouped_revived_and_purged_by_group(app: Forebay) -> None:
    handles = died_of(app, "order 1", "order 2", "no door", "order 3")

    found = app.dead.groups()
    orders, door = found.groups

    assert (found.jobs, found.is_whole) == (4, True)
    assert (orders.message, orders.jobs, orders.tasks) == (
        "Boom: order #",
        3,
        {"send.3": 1, "send.1": 1, "send.0": 1},
    )
    assert app.dead.groups(JobQuery(tasks=("send.2",))).groups == (door,)
    assert app.client.read(lambda reader: counted(reader, JobQuery(), orders.id)) == (3, True)
    assert app.dead.revive(JobQuery(tasks=("send.0",)), group=orders.id) == 1
    assert app.dead.revive(group=door.id) == 1
    assert app.dead.purge(group=orders.id) == 2
    assert [handle.refresh().state for handle in (handles[0], handles[2])] == [JobState.PENDING] * 2
    assert app.dead.groups().groups == ()
    with pytest.raises(ConfigError, match="no failure group"):
        app.dead.revive(group="order")


def test_a_count_of_a_group_says_where_it_has_stopped(app: Forebay, monkeypatch: pytest.MonkeyPatch) -> None:
    died_of(app, "order 1", "order 2", "order 3")
    [group] = app.dead.groups().groups

    monkeypatch.setattr("forebay.app.searching.EXACT_UP_TO", 2)

    assert app.client.read(lambda reader: counted(reader, JobQuery(), group.id)) == (2, False)


@pytest.mark.shows("R-RETRY-45")
def test_retry_stats_tell_how_jobs_of_a_task_have_fared(app: Forebay) -> None:
    died_of(app, "order 1", "order 2")

    found = app.dead.retry_stats("send.1")

    assert (found.jobs, found.retried, found.recovered, found.dead) == (1, 1, 0, 1)
    assert (found.success_rate, found.average_attempts) == (0.0, 1.0)
    assert (found.errors, found.is_whole) == ({"Boom: order #": 1}, True)
    assert asyncio.run(app.dead.retry_stats_async(newest=1)).is_whole is False


def test_ramps_are_started_and_steered_by_an_app(app: Forebay) -> None:
    died_of(app, "order 1")
    [group] = app.dead.groups().groups

    ramp = app.dead.ramp(group=group.id, first=5, every=2, stop_percent=10)

    assert (ramp.pace.first, ramp.pace.every_ms, ramp.pace.stop_percent) == (5, 2_000, 10)
    assert app.dead.pause(ramp.name).state is RampState.PAUSED
    assert app.dead.resume(ramp.name).state is RampState.RUNNING
    assert app.dead.stop(ramp.name).state is RampState.STOPPED
    assert [one.state for one in app.dead.ramps()] == [RampState.STOPPED]
    with pytest.raises(RampNotFound):
        app.dead.progress("nobody")
    with pytest.raises(InvalidJob, match="every must be from 1 to"):
        app.dead.ramp(every=0.5)


def test_coroutines_group_and_steer_alike(app: Forebay) -> None:
    died_of(app, "order 1")

    asyncio.run(_steered(app))


async def _steered(app: Forebay) -> None:
    [group] = (await app.dead.groups_async()).groups
    again = await app.dead.ramp_async(group=group.id)
    assert (await app.dead.pause_async(again.name)).state is RampState.PAUSED
    assert (await app.dead.resume_async(again.name)).state is RampState.RUNNING
    assert (await app.dead.stop_async(again.name)).state is RampState.STOPPED
    assert (await app.dead.progress_async(again.name)).state is RampState.STOPPED
    assert len(await app.dead.ramps_async()) == 1
    assert await app.dead.revive_async(group=group.id) == 1
    assert await app.dead.purge_async() == 0


@pytest.mark.shows("R-DLQ-21")
def test_a_worker_goes_on_with_a_ramp_until_all_is_done(tmp_path: Path) -> None:
    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as app:
        handles = died_of(app, *["order 1"] * 3)
        [group] = app.dead.groups().groups
        ramp = app.dead.ramp(group=group.id, first=3, every=1)

        with app.working():
            eventually(lambda: not app.dead.progress(ramp.name).is_open)

        done = app.dead.progress(ramp.name)
        assert (done.state, done.batches, done.completed_jobs) == (RampState.COMPLETED, 1, 3)
        assert [handle.result() for handle in handles] == ["sent"] * 3
