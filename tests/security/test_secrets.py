"""A marked secret goes through whole runs, good ones and bad ones, and shows in nothing that a user sees."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from forebay import Forebay, JobHandle
from forebay.domain.job_query import JobQuery
from forebay.errors import ForebayError
from tests.cli.command_runner import call
from tests.stores import postgres_support, redis_support
from tests.urls import SHARED, lent_url

HIDDEN: Final = "hunter2-marked"
# No server listens there.
NOWHERE: Final = (
    f"postgresql://ada:{HIDDEN}@127.0.0.1:1/jobs?connect_timeout=5",
    f"postgresql://127.0.0.1:1/jobs?user=ada&password={HIDDEN}&connect_timeout=5",
    f"redis://ada:{HIDDEN}@127.0.0.1:1/0",
    f"redis+sentinel://ada:{HIDDEN}@127.0.0.1:1/master/0",
)


@contextmanager
def marked_url(engine: str, folder: Path) -> Iterator[str]:
    """A store behind an address with the marked password, if it is a server's."""
    with lent_url(engine, folder) as url:
        if engine == "redis":
            redis_support.admin().acl_setuser(
                "marked",
                enabled=True,
                passwords=[f"+{HIDDEN}"],
                keys=["*"],
                channels=["*"],
                categories=["+@all"],
            )
        yield url.replace("jobs:secret@", f"marked:{HIDDEN}@").replace("postgres@", f"postgres:{HIDDEN}@")


class Witness:
    """Sees whatever a program shows."""

    def __init__(self, logs: pytest.LogCaptureFixture, streams: pytest.CaptureFixture[str]) -> None:
        logs.set_level(logging.DEBUG)
        self._logs = logs
        self._streams = streams
        self.seen: list[str] = []

    def look(self, *things: object) -> None:
        self.seen += [f"{thing!r} {thing}" for thing in things]

    def refused(self, ask: Callable[[], object]) -> None:
        with pytest.raises(ForebayError) as caught:
            ask()
        self.seen += traceback.format_exception(caught.value)
        self.look(caught.value)

    def run(self, *words: str) -> None:
        """Call a command for people and for programs."""
        for form in ([], ["--json"]):
            result = call(*words, *form)
            self.seen += [result.stdout, result.stderr]
            if result.exception is not None:
                self.seen += traceback.format_exception(result.exception)

    def everything(self) -> str:
        streams = self._streams.readouterr()
        records = [str(vars(record)) for record in self._logs.records]
        return "\n".join([*self.seen, self._logs.text, *records, streams.out, streams.err])


@pytest.fixture
def witness(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Witness:
    return Witness(caplog, capsys)


@pytest.mark.shows("R-SEC-05", "R-SEC-08", "R-EDGE-87")
@pytest.mark.parametrize("engine", SHARED)
def test_no_secret_shows_in_a_run(engine: str, tmp_path: Path, witness: Witness) -> None:
    with marked_url(engine, tmp_path) as url, Forebay(url) as app:

        @app.task(name="good", retries=0)
        def good(password: str, *, options: dict[str, Any]) -> dict[str, str]:
            return {"token": password}

        @app.task(name="bad", retries=0)
        def bad(api_key: str) -> None:
            raise ValueError("it broke")

        with app.run_worker(threads=1) as worker:
            jobs: list[JobHandle[Any]] = [
                good.enqueue(HIDDEN, options={"secret": HIDDEN}),
                good.enqueue(password=HIDDEN, options={}),
            ]
            jobs.append(bad.enqueue(api_key=HIDDEN))
            ended = [job.wait(timeout=120) for job in jobs]
            witness.look(app, app.engine, app.client, worker, *jobs, app.search(JobQuery()))

        witness.look(app.counts(), app.engine.location, app.client.read(lambda reader: reader.audit()))
        # Arguments by position have no names there, see below.
        for job in jobs[1:]:
            witness.run("jobs", "show", job.id, "--url", url)
        for words in (
            "stats",
            "doctor",
            "jobs list",
            "dead list",
            "workers list",
            "queues list",
            "inspect default",
        ):
            witness.run(*words.split(), "--url", url)
        witness.run("jobs", "show", "absent", "--url", url)
        witness.run("enqueue", "good", "--url", url, "--password")

    assert [job.state.value for job in ended] == ["completed", "completed", "dead"]
    output = witness.everything()
    assert HIDDEN not in output
    assert "it broke" in output


@pytest.mark.shows("R-SEC-08")
@pytest.mark.parametrize("url", NOWHERE)
def test_no_password_shows_when_a_server_is_away(url: str, witness: Witness) -> None:
    app = Forebay(url)
    consumer = app.consumer()

    witness.refused(lambda: app.enqueue("t"))
    witness.refused(app.counts)
    witness.refused(consumer.claim)
    witness.run("stats", "--url", url)
    witness.run("doctor", "--url", url)
    consumer.close()
    app.close()

    output = witness.everything()
    assert HIDDEN not in output
    assert "127.0.0.1" in output


@pytest.mark.shows("R-SEC-08")
def test_no_password_shows_when_it_is_wrong(witness: Witness) -> None:
    redis_url = redis_support.user_url().replace(":secret@", f":{HIDDEN}@")
    no_database = postgres_support.server().url("missing").replace("postgres@", f"postgres:{HIDDEN}@")

    for url in (redis_url, no_database):
        with Forebay(url) as app:
            witness.refused(partial(app.enqueue, "t"))
        witness.run("stats", "--url", url)

    assert HIDDEN not in witness.everything()


def test_what_a_payload_says_in_the_store_is_all_that_is_masked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Forebay(url) as app:
        job = app.enqueue("t", [{"token": HIDDEN}], {"to": "ann", "key": HIDDEN})

    shown = json.loads(call("jobs", "show", job.id, "--url", url, "--json").stdout)

    assert (shown["args"], shown["kwargs"]) == ([{"token": "***"}], {"to": "ann", "key": "***"})


def test_an_argument_by_position_has_no_name_and_is_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Forebay(url) as app:
        app.task(name="login")(lambda password: None)
        job = app.enqueue("login", [HIDDEN])

    assert json.loads(call("jobs", "show", job.id, "--url", url, "--json").stdout)["args"] == [HIDDEN]
