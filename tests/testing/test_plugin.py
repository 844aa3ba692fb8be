"""The fixtures of pytest, as the tests of a program use them: in a pytest of their own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest_forebay
from forebay.testing import WorkerStep
from tests.docs.pages import ROOT
from tests.testing.inner import run_pytest

JOBS = """
from forebay import Forebay, current_job

app = Forebay("sqlite:////nowhere/at/all.db")
paid = {}


class Bank:
    def charge(self, card, key=None):
        if key is None or key not in paid:
            paid[key or len(paid)] = card


bank = Bank()


@app.task
def buy(card: str) -> None:
    bank.charge(card)


@app.task
def buy_once(card: str) -> None:
    current_job().step("charge the card", bank.charge, card, current_job().id)
"""
CONFTEST = """
import jobs
import pytest


@pytest.fixture
def forebay_app():
    return jobs.app
"""


def pytest_on(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "jobs.py").write_text(JOBS)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_shop.py").write_text("import jobs\nimport pytest\n" + test)
    return run_pytest(folder, *options)


def outcomes(answer: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """What the last line counts."""
    last = answer.stdout.strip().splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)}


def test_a_crash_finds_the_task_that_is_not_idempotent_and_names_step_task_and_effect(tmp_path: Path) -> None:
    test = """
def test_a_card_is_charged_once(forebay_trial, forebay_crash_step, monkeypatch):
    monkeypatch.setattr(jobs.bank, "charge", forebay_trial.effect(jobs.bank.charge, "charge"))
    jobs.buy.enqueue("ada's")

    forebay_trial.crash(forebay_crash_step)
    forebay_trial.recover()

    forebay_trial.assert_effects_once("charge")
"""

    answer = pytest_on(tmp_path, test)

    assert outcomes(answer) == {"failed": 1, "passed": 3}
    assert "FAILED test_shop.py::test_a_card_is_charged_once[ran]" in answer.stdout
    [message] = re.findall(r"^E +AssertionError: (.*)", answer.stdout, flags=re.MULTILINE)
    assert message.startswith('charge("ada\'s") has happened 2 times')
    assert "of task jobs.buy, in attempts 1, 2" in message
    assert "a worker has crashed after the step 'ran' of attempt 1" in message


def test_the_same_task_with_a_step_and_a_key_passes_at_every_step(tmp_path: Path) -> None:
    test = """
def test_a_card_is_charged_once(forebay_trial, forebay_crash_step):
    jobs.paid.clear()
    jobs.buy_once.enqueue("ada's")

    forebay_trial.crash(forebay_crash_step)
    forebay_trial.recover()

    assert list(jobs.paid.values()) == ["ada's"]
"""

    answer = pytest_on(tmp_path, test)

    assert outcomes(answer) == {"passed": 4}, answer.stdout


def test_tests_run_on_each_store_that_the_setting_names(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nforebay_stores = memory sqlite\n")
    test = """
def test_it_runs(forebay_trial):
    jobs.buy.enqueue("bob's")
    assert forebay_trial.drain() == 1


def test_it_runs_at_once(forebay_inline):
    assert jobs.buy.enqueue("bob's").refresh().is_final


@pytest.mark.parametrize("forebay_store", ["sqlite"], indirect=True)
def test_a_test_may_choose(forebay_url):
    assert forebay_url.startswith("sqlite:///")


@pytest.mark.parametrize(argnames="forebay_store", argvalues=["sqlite"], indirect=True)
def test_a_test_may_choose_by_name(forebay_url):
    assert forebay_url.startswith("sqlite:///")


@pytest.mark.parametrize("number, forebay_store", [(1, "sqlite")], indirect=["forebay_store"])
def test_a_test_may_choose_among_others(number, forebay_url):
    assert forebay_url.startswith("sqlite:///")


@pytest.mark.parametrize(["forebay_store", "number"], [("sqlite", 1)], indirect=["forebay_store"])
def test_a_test_may_choose_in_a_list(number, forebay_url):
    assert forebay_url.startswith("sqlite:///")


def test_time_stands_still(forebay_trial, forebay_clock):
    assert forebay_trial.clock is forebay_clock
"""

    answer = pytest_on(tmp_path, test)

    assert outcomes(answer) == {"passed": 10}, answer.stdout
    assert "PASSED test_shop.py::test_it_runs[sqlite]" in answer.stdout


def test_without_an_app_of_its_own_a_test_has_an_empty_one(tmp_path: Path) -> None:
    test = """
def test_it_runs(forebay_app, forebay_trial):
    task = forebay_app.task(name="double")(lambda number: 2 * number)
    job = task.enqueue(4)
    forebay_trial.drain()
    assert job.result(0) == 8
"""

    answer = pytest_on(tmp_path, test, "--noconftest")

    assert outcomes(answer) == {"passed": 1}, answer.stdout


def loaded(name: str) -> set[str]:
    """The modules that a fresh interpreter has after it has imported this one."""
    script = f"import sys, {name}; print('\\n'.join(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(answer.stdout.split())


def test_the_start_of_pytest_loads_nothing_of_forebay() -> None:
    assert [name for name in loaded("pytest_forebay") if name.partition(".")[0] == "forebay"] == []


def test_importing_forebay_does_not_load_its_helpers_for_tests() -> None:
    assert [name for name in loaded("forebay") if name.startswith("forebay.testing")] == []


def test_the_helpers_load_no_driver() -> None:
    assert {"psycopg", "redis", "sqlite3", "httpx2"} & loaded("forebay.testing") == set()


def test_the_plugin_knows_every_step() -> None:
    assert list(pytest_forebay.STEPS) == list(WorkerStep)


def test_the_package_names_the_plugin_to_pytest_and_brings_it() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["project"]["entry-points"]["pytest11"] == {"pytest_forebay": "pytest_forebay"}
    assert "src/pytest_forebay" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_every_fixture_says_what_it_is() -> None:
    source = Path(pytest_forebay.__file__).read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    fixtures = [node for node in functions if node.name.startswith("forebay_")]

    assert len(fixtures) == 7
    assert [node.name for node in fixtures if not ast.get_docstring(node)] == []
