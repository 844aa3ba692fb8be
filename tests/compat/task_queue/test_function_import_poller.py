"""Functions of waiting jobs are looked for, whatever the store does meanwhile."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from forebay import Forebay, StoreUnavailable
from forebay.compat.task_queue import function_import_poller
from forebay.compat.task_queue.function_import_poller import FunctionImportPoller
from forebay.compat.task_queue.function_registry import FunctionRegistry
from forebay.compat.task_queue.queue import TaskQueue
from forebay.domain.job import DEFAULT_QUEUE
from tests.compat import calls
from tests.worker.support import DEADLINE, eventually, no_thread_stays

ADD = "tests.compat.calls:add"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes a module that can be imported while the test lasts; answers where it may write to."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> Path:
        (tmp_path / f"{name}.py").write_text(text)
        return tmp_path / f"{name}.txt"

    return write


QUITS = """
import sys
with open(__file__.replace(".py", ".txt"), "a") as file:
    file.write("run ")
sys.exit("not as a module")
"""


def test_what_waits_at_the_start_is_known_before_anything_is_claimed() -> None:
    with Forebay("memory://") as app:
        app.enqueue(ADD, [1])
        app.enqueue("tests.compat.calls:note", ["key", 1], delay=60)
        importer = FunctionImportPoller(app, DEFAULT_QUEUE, FunctionRegistry(app, DEFAULT_QUEUE))

        importer.start()
        importer.stop()
        importer.stop()

        assert set(app.registry) == {ADD, "tests.compat.calls:note"}


def test_a_store_that_does_not_answer_is_asked_again_and_a_closed_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(function_import_poller, "POLL_SECONDS", 0.001)
    app = Forebay("memory://")
    importer = FunctionImportPoller(app, DEFAULT_QUEUE, FunctionRegistry(app, DEFAULT_QUEUE))
    look = importer.poll
    looks: list[int] = []

    def in_trouble() -> None:
        looks.append(len(looks))
        if len(looks) < 3:
            raise StoreUnavailable("locked")
        look()

    monkeypatch.setattr(importer, "poll", in_trouble)
    with no_thread_stays(), caplog.at_level(logging.WARNING):
        importer.start()
        eventually(lambda: len(looks) > 3)
        app.close()

    assert caplog.text.count("cannot be looked up now: locked") == 2
    assert caplog.text.count("are not looked up any more") == 1


def test_two_threads_that_meet_a_function_at_once_make_one_task(key: str) -> None:
    found: list[Any] = []
    with Forebay("memory://") as app:
        functions = FunctionRegistry(app, DEFAULT_QUEUE)
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


def test_a_module_that_ends_the_program_cannot_be_imported_and_keeps_no_worker_from_starting(
    module: Callable[[str, str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = module("quits_at_import", QUITS)
    file = tmp_path / "queue.db"
    with Forebay(f"sqlite:///{file}") as app:
        app.enqueue("quits_at_import:work", id="quits")
        app.enqueue("tests.compat.calls:nowhere", id="nowhere")

    with caplog.at_level(logging.WARNING, "forebay.compat"), TaskQueue(file, num_workers=1) as queue:
        cause = eventually(lambda: queue.get_status("quits").error_message)
        eventually(lambda: "quits_at_import:work, which cannot be imported here" in caplog.text)
        other = eventually(lambda: queue.get_status("nowhere").error_message)
        assert other is not None

        assert queue.get_result(queue.submit(calls.add, 1), timeout=DEADLINE) == 1
        assert queue.get_status("quits").status == "pending"

    assert cause == "quits_at_import:work cannot be imported here: SystemExit: not as a module"
    assert "AttributeError" in other
    assert "cannot be imported here: SystemExit: not as a module" in caplog.text
    # Each look would do its work again, so one is enough.
    assert runs.read_text().split() == ["run"]


def test_a_module_that_raises_may_be_mended_and_is_tried_again(
    module: Callable[[str, str], Path],
) -> None:
    module("broken_at_first", "import no_such_module_at_all")
    with Forebay("memory://") as app:
        functions = FunctionRegistry(app, DEFAULT_QUEUE)

        assert functions.import_function("broken_at_first:work") is False
        assert "no_such_module_at_all" in (functions.why_missing("broken_at_first:work") or "")
        module("broken_at_first", "def work(): ...\n\n\n# of another length")
        importlib.invalidate_caches()

        assert functions.import_function("broken_at_first:work") is True
        assert functions.why_missing("broken_at_first:work") is None


def test_what_crashes_the_looking_thread_is_raised_once_to_the_caller_that_stops_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(function_import_poller, "POLL_SECONDS", 0.001)

    def crash(_self: FunctionImportPoller) -> None:
        raise GeneratorExit("this is unexpected")

    monkeypatch.setattr(FunctionImportPoller, "poll", crash)
    with no_thread_stays():
        queue = TaskQueue(":memory:", num_workers=1)
        with caplog.at_level(logging.ERROR):
            eventually(lambda: "the import of functions of waiting jobs has crashed" in caplog.text)
        job_id = queue.submit(calls.add, 1)
        assert queue.get_result(job_id, timeout=DEADLINE) == 1

        with pytest.raises(GeneratorExit, match="this is unexpected"):
            queue.close()
        queue.close()
