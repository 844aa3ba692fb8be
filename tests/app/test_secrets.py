"""What must never happen: a password in a message, code that comes out of stored data."""

from __future__ import annotations

import ast
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from forebay import ConfigError, Forebay
from forebay.app.consumer import arguments
from forebay.domain.job import NewJob
from forebay.domain.job_states import JobState
from forebay.errors import CorruptPayload
from forebay.stores.url_redaction import redact_url

SOURCE = Path(__file__).parents[2] / "src" / "forebay"

# ------------------------------------------------------------------ passwords


BAD_URLS = [
    "mysql://ada:hunter2@localhost/jobs",
    "mysql://ada:hunter2@localhost:99/jobs?x=1",
    "mysql://:hunter2@localhost/jobs",
    "mysql://ada:p@ss/hunter2@localhost/jobs",
    "mysql://ada:hunter2@[localhost/jobs",
    "mysql://ada:hunter2\u2100@localhost/jobs",
    "mysql://localhost/jobs?user=ada&password=hunter2",
    "mysql://localhost/jobs?TOKEN=hunter2&x=1",
    "memory://ada:hunter2@here",
    "sqlite://ada:hunter2@localhost/jobs.db",
    "sqlite:///jobs.db?durability=none&password=hunter2",
    "sqlite:///jobs.db?secret=hunter2#there",
    "redis://ada:a?hunter2@localhost/0",
    "redis://ada:1#hunter2@localhost/0",
    "postgresql://ada:a?hunter2@localhost/jobs",
    "postgresql://ada:1?hunter2@localhost/jobs",
    "postgresql://ada:1#hunter2@localhost/jobs",
    "postgresql://ada:a@hunter2@localhost/jobs",
]


@pytest.mark.shows("R-SEC-08")
@pytest.mark.parametrize("url", BAD_URLS)
def test_the_password_of_an_address_is_not_in_its_error(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    with pytest.raises(ConfigError) as caught:
        Forebay(url)

    shown = "".join(traceback.format_exception(caught.value, limit=0)) + repr(caught.value) + caplog.text
    assert "hunter2" not in shown
    assert url.partition("://")[0] in shown


@pytest.mark.shows("R-SEC-08")
def test_an_address_is_shown_without_its_password_and_otherwise_as_it_is() -> None:
    shown = {
        "postgresql://ada:hunter2@db.example.com:5432/jobs": "postgresql://ada:***@db.example.com:5432/jobs",
        "redis://:hunter2@localhost/0": "redis://:***@localhost/0",
        "redis://localhost/0?password=hunter2&db=1": "redis://localhost/0?password=***&db=1",
        "redis://localhost/0?ssl_key=hunter2&x=1": "redis://localhost/0?ssl_key=***&x=1",
        "ada:hunter2@localhost/jobs": "ada:***@localhost/jobs",
        "ada:p://hunter2@localhost": "ada:***@localhost",
        "postgresql:/ada:hunter2@localhost": "postgresql:***@localhost",
        "postgresql://ada@localhost/jobs": "postgresql://ada@localhost/jobs",
        "sqlite:////srv/ada@home.db": "sqlite:////srv/ada@home.db",
        "memory://": "memory://",
    }

    assert {url: redact_url(url) for url in shown} == shown


@pytest.mark.shows("R-SEC-08")
def test_an_app_does_not_show_its_address() -> None:
    app = Forebay("sqlite:///hunter2.db")

    assert repr(app) == "<Forebay on sqlite, 0 tasks>"


@pytest.mark.parametrize("url", [None, 5, b"sqlite:///jobs.db"])
def test_an_address_that_is_no_text_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError, match=r"a store URL is a text, not .*; write one of"):
        Forebay(url)


# ------------------------------------------------------------------ code in data


class Spring:
    """Runs code when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return (Path.touch, (self._file,))


def test_the_trap_of_the_next_tests_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Spring(tmp_path / "sprung")))  # noqa: S301 - that is the point

    assert (tmp_path / "sprung").exists()


@pytest.mark.shows("R-SEC-01")
def test_a_pickle_in_the_place_of_a_payload_is_never_read(live_app: Forebay, tmp_path: Path) -> None:
    live_app.task(name="t")(lambda value: None)
    trap = NewJob(task="t", payload=pickle.dumps(((Spring(tmp_path / "sprung"),), {})))

    with live_app.run_worker(threads=1):
        job = live_app.enqueue(trap).wait(timeout=120)

    assert (job.state, job.failures) == (JobState.DEAD, 1)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.shows("R-SEC-01")
def test_a_pickle_in_the_place_of_a_result_is_never_read(app: Forebay, tmp_path: Path) -> None:
    trap = pickle.dumps(Spring(tmp_path / "sprung"))
    handle = app.enqueue(NewJob(task="t", payload=trap))
    consumer = app.consumer()
    [job] = consumer.claim()

    with pytest.raises(CorruptPayload):
        arguments(job)
    consumer.complete(job)
    consumer.close()

    assert handle.result(timeout=0) is None
    assert not (tmp_path / "sprung").exists()


@pytest.mark.shows("R-SEC-01")
def test_nothing_in_the_package_can_unpickle() -> None:
    # What waits in other queues is often a pickle. Who imports from there says that it can be trusted, and
    # even then plain data alone is read: tests/importers/test_pickles.py.
    reads_plain_data = SOURCE / "integrations" / "importers" / "safe_pickle.py"
    imported = {
        name
        for file in SOURCE.rglob("*.py")
        if file != reads_plain_data
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in _imported(node)
    }

    assert imported & {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve"} == set()
    assert "msgspec" in imported


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name.partition(".")[0] for alias in names]
        case ast.ImportFrom(module=str(module)):
            return [module.partition(".")[0]]
        case _:
            return []
