"""Functions by name: what can be stored, and what is refused before anything is."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay import Forebay, InvalidJob
from forebay.compat.task_queue.function_registry import FunctionRegistry, bind_call, path_of
from forebay.compat.task_queue.queue import TaskQueue
from tests.compat import calls


def nested() -> Any:
    def inside() -> None: ...

    return inside


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (lambda: None, "no other program could import it"),
        (nested(), "no other program could import it"),
        (calls.Shop().sell, "not a method of an object"),
        (calls.asleep, "is a coroutine function"),
        (5, "must be a function"),
        ("tests.compat.calls:add", "must be a function"),
        (partial(lambda: None), "no other program could import it"),
    ],
)
@pytest.mark.shows("R-ENQ-29")
def test_what_no_other_program_could_import_is_refused(idle: TaskQueue, func: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as caught:
        idle.submit(func)

    assert caught.value.field == "func"
    assert sum(idle.get_queue_stats().values()) == 0


def test_a_name_that_now_means_something_else_is_refused(
    idle: TaskQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = calls.add
    monkeypatch.setattr(calls, "add", calls.note)

    with pytest.raises(InvalidJob, match=r"tests\.compat\.calls:add is not the function that was given"):
        idle.submit(add, 1)


def test_a_function_is_named_by_its_module_and_its_name_inside_it() -> None:
    assert path_of(calls.add) == "tests.compat.calls:add"
    assert path_of(calls.Shop.price) == "tests.compat.calls:Shop.price"


def test_partials_bring_their_arguments() -> None:
    func = partial(partial(calls.note, "a", value=1), value=2)

    assert bind_call(func, ["b"], {"more": 3}) == (calls.note, ("a", "b"), {"value": 2, "more": 3})


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("tests.compat.calls:add", True),
        ("tests.compat.calls:Shop.price", True),
        ("tests.compat.calls:gone", False),
        ("tests.compat.calls:ERRORS", False),
        ("no_such_module:add", False),
        ("tests.compat.calls", False),
        ("", False),
        (":", False),
        (":add", False),
        ("..calls:add", False),
    ],
)
def test_a_name_leads_to_a_function_or_to_nothing(path: str, is_there: bool) -> None:
    with Forebay("memory://") as app:
        assert FunctionRegistry(app, "default").import_function(path) is is_there
        assert (path in app.registry) is is_there


PROGRAM = """
import sys
from forebay.compat.task_queue.queue import TaskQueue

print("begins as", __name__)


def double(number):
    return 2 * number


if __name__ == "__main__":
    with TaskQueue("jobs.db", num_workers=int(sys.argv[1])) as queue:
        if sys.argv[1] == "0":
            queue.submit(double, 21, job_id="one")
        else:
            print(queue.get_result("one", timeout=100))
"""


def test_a_program_finds_its_own_functions_after_a_restart_without_being_imported_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    first, second = (_run(tmp_path, workers) for workers in ("0", "1"))

    assert first == "begins as __main__\n"
    assert second == "begins as __main__\n42\n"


def test_what_was_typed_in_is_refused(tmp_path: Path) -> None:
    program = f"{PROGRAM.partition('if __name__')[0]}\nTaskQueue('jobs.db', num_workers=0).submit(double, 1)"

    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "double was typed in, so no other program could import it" in answer.stderr


def _run(folder: Path, *arguments: str) -> str:
    answer = subprocess.run(
        [sys.executable, "program.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return answer.stdout
