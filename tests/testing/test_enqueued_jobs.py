"""What was enqueued, and what it has done to the world."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from forebay import Forebay, current_job
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError
from forebay.testing import Trial, store_urls, trial_url


@dataclass
class Parcel:
    weight: int


@pytest.fixture
def app() -> Forebay:
    return Forebay("memory://")


@pytest.fixture
def trial(app: Forebay) -> Iterator[Trial]:
    with Trial(app) as trial:
        yield trial


def test_jobs_are_found_by_task_and_arguments_however_these_were_given(app: Forebay, trial: Trial) -> None:
    @app.task(name="send", aliases=["post"], queue="mail")
    def send(to: str, parcel: Parcel, fast: bool = False) -> None: ...

    first = send.enqueue("ada", Parcel(3))
    second = send.enqueue(to="bob", parcel=Parcel(4), fast=True)

    assert [job.id for job in trial.assert_enqueued(send)] == [first.id, second.id]
    assert trial.assert_enqueued(send, {"to": "ada", "fast": False}, count=1)[0].id == first.id
    assert trial.assert_enqueued(send, {"parcel": Parcel(4)}, queue="mail")[0].id == second.id
    assert len(trial.assert_enqueued("post", states=(JobState.PENDING,))) == 2
    trial.assert_not_enqueued(send, {"to": "cyd"})
    trial.assert_not_enqueued(send, queue="default")
    trial.assert_not_enqueued(send, states=(JobState.COMPLETED,))


def test_jobs_of_other_programs_are_found_by_what_was_given(app: Forebay, trial: Trial) -> None:
    app.enqueue("elsewhere", ["ada"], {"fast": True})

    trial.assert_enqueued("elsewhere", {"0": "ada", "fast": True})


def test_what_is_missing_is_told_with_what_is_there(app: Forebay, trial: Trial) -> None:
    send = app.task(name="send")(lambda to: None)

    with pytest.raises(AssertionError, match=r"^send was not enqueued; nothing was enqueued$"):
        trial.assert_enqueued(send)
    send.enqueue("ada")
    with pytest.raises(AssertionError) as missing:
        trial.assert_enqueued(send, {"to": "bob"}, queue="mail")
    with pytest.raises(AssertionError, match=r"^send was not enqueued 2 times, but 1 times; "):
        trial.assert_enqueued(send, count=2)

    assert str(missing.value) == (
        "send with {'to': 'bob'} in mail was not enqueued; these were enqueued:\n"
        "  send(to='ada') in default, pending"
    )


def test_of_many_jobs_some_are_told(app: Forebay, trial: Trial) -> None:
    send = app.task(name="send")(lambda to: None)
    app.enqueue_many([send.job(number) for number in range(150)])

    with pytest.raises(AssertionError) as missing:
        trial.assert_not_enqueued(send)

    assert str(missing.value).splitlines()[-1] == "  and 130 more"
    assert len(trial.jobs()) == 150


# Effects


def test_effects_of_different_jobs_and_arguments_are_different(app: Forebay, trial: Trial) -> None:
    charge = trial.effect(lambda card, cents=1: None, "charge")

    @app.task(name="pay")
    def pay() -> None:
        charge("ada's")
        charge("ada's", cents=2)

    pay.enqueue()
    pay.enqueue()
    charge("of absent")
    trial.drain()

    trial.assert_effects_once("charge")


def test_a_crash_right_after_an_effect_is_found(app: Forebay, trial: Trial) -> None:
    def charge(card: str) -> None: ...

    watched = trial.effect(charge)

    @app.task(name="pay")
    async def pay() -> None:
        with suppress(BaseException):  # one that is dead stays dead, whatever its task catches
            watched("ada's")

    job = pay.enqueue()

    assert trial.crash("charge").task == "pay"
    assert job.refresh().state is JobState.RUNNING
    assert trial.recover() == 1
    with pytest.raises(AssertionError, match="after the step 'charge' of attempt 1 of pay"):
        trial.assert_effects_once()


def test_coroutines_can_be_watched(app: Forebay, trial: Trial) -> None:
    async def charge(card: str) -> str:
        return card

    watched = trial.effect(charge)

    @app.task(name="pay")
    async def pay() -> str:
        return await watched("ada's")

    job = pay.enqueue()
    trial.drain()

    assert job.result(0) == "ada's"
    trial.assert_effects_once("charge")


def test_a_step_of_a_job_is_not_done_again_after_a_crash_behind_it(app: Forebay, trial: Trial) -> None:
    charge = trial.effect(lambda card: None, "charge")

    @app.task(name="pay")
    def pay() -> None:
        current_job().step("pay once", charge, "ada's")

    job = pay.enqueue()

    trial.crash("pay once")
    trial.recover()

    assert (job.refresh().attempt, job.refresh().state) == (2, JobState.COMPLETED)
    trial.assert_effects_once("charge")


def test_an_effect_that_never_happens_is_told(app: Forebay, trial: Trial) -> None:
    charge = trial.effect(lambda: None, "charge")

    with pytest.raises(AssertionError, match="no effect that is watched has happened; no worker has crashed"):
        trial.assert_effects_once()
    charge()
    with pytest.raises(AssertionError, match="refund has never happened"):
        trial.assert_effects_once("charge", "refund")
    charge()
    with pytest.raises(AssertionError, match=r"charge\(\) has happened 2 times, outside of any job"):
        trial.assert_effects_once()


def test_a_step_that_is_never_reached_is_told(app: Forebay, trial: Trial) -> None:
    app.task(name="work")(lambda: None)

    with pytest.raises(
        AssertionError, match="no worker came to the step 'ran' in 0 attempts; steps so far: none"
    ):
        trial.crash("ran")
    app.enqueue("work")
    with pytest.raises(
        AssertionError, match="'run' in 1 attempts; steps so far: claimed, started, ran, settled"
    ):
        trial.crash("run")


def test_a_job_that_takes_down_two_workers_is_recovered_after_its_back_off(
    app: Forebay, trial: Trial
) -> None:
    app.task(name="work")(lambda: None)
    job = app.enqueue("work")

    trial.crash("started")
    trial.clock.advance(seconds=3_600)
    trial.crash("started")

    assert trial.recover() == 1
    assert (job.refresh().crashes, job.refresh().state) == (2, JobState.COMPLETED)


# Addresses


def test_each_process_has_its_own_place_on_a_server(tmp_path: Path) -> None:
    assert trial_url("sqlite", tmp_path) == f"sqlite:///{tmp_path}/jobs.db"
    assert (
        trial_url("redis://host/3?max_finished=5", tmp_path, "gw2")
        == "redis://host/3?max_finished=5&namespace=forebay_test_gw2"
    )
    assert trial_url("postgresql://host/x?schema=mine", tmp_path) == "postgresql://host/x?schema=mine"
    with pytest.raises(ConfigError, match="'mysql' is no store"):
        trial_url("mysql", tmp_path)


def test_the_examples_of_addresses_are_true() -> None:
    result = doctest.testmod(store_urls)

    assert (result.failed, result.attempted > 0) == (0, True)
