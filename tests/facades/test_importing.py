"""Functions of waiting jobs are looked for, whatever the store does meanwhile."""

from __future__ import annotations

import logging
from threading import Thread
from typing import Any

import pytest

from forebay import Forebay, StoreUnavailable
from forebay.domain.job import DEFAULT_QUEUE
from forebay.facades import importing
from forebay.facades.functions import Functions
from forebay.facades.importing import Importing
from forebay.facades.task_queue import TaskQueue
from tests.facades import calls
from tests.worker.support import DEADLINE, eventually, no_thread_stays

ADD = "tests.facades.calls:add"


def test_what_waits_at_the_start_is_known_before_anything_is_claimed() -> None:
    with Forebay("memory://") as app:
        app.enqueue(ADD, [1])
        app.enqueue("tests.facades.calls:note", ["key", 1], delay=60)
        looking = Importing(app, DEFAULT_QUEUE, Functions(app, DEFAULT_QUEUE))

        looking.start()
        looking.stop()
        looking.stop()

        assert set(app.registry) == {ADD, "tests.facades.calls:note"}


def test_a_store_that_does_not_answer_is_asked_again_and_a_closed_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importing, "LOOK_SECONDS", 0.001)
    app = Forebay("memory://")
    looking = Importing(app, DEFAULT_QUEUE, Functions(app, DEFAULT_QUEUE))
    look = looking.look
    looks: list[int] = []

    def in_trouble() -> None:
        looks.append(len(looks))
        if len(looks) < 3:
            raise StoreUnavailable("locked")
        look()

    monkeypatch.setattr(looking, "look", in_trouble)
    with no_thread_stays(), caplog.at_level(logging.WARNING):
        looking.start()
        eventually(lambda: len(looks) > 3)
        app.close()

    assert caplog.text.count("cannot be looked for now: locked") == 2
    assert caplog.text.count("are looked for no more") == 1


def test_two_threads_that_meet_a_function_at_once_make_one_task(key: str) -> None:
    found: list[Any] = []
    with Forebay("memory://") as app:
        functions = Functions(app, DEFAULT_QUEUE)
        threads = [Thread(target=lambda: found.append(functions.task(calls.add))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)

        assert len(found) == 20
        assert set(map(id, found)) == {id(app.registry[ADD])}


def test_a_queue_that_is_forgotten_lets_go_of_its_file_and_its_threads() -> None:
    with no_thread_stays():
        queue = TaskQueue(":memory:", num_workers=1)
        assert queue.get_result(queue.submit(calls.add, 1), timeout=DEADLINE) == 1
        queue.shutdown()
        del queue
