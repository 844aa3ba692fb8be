"""Workers are listed, looked into and controlled from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay import Forebay
from forebay.cli.commands.worker_admin import wait_for_answers
from forebay.cli.store_session import StoreSession
from forebay.clock import SystemClock
from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.domain.worker_command import CommandKind
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from forebay.worker.worker import Worker
from tests.cli.command_runner import answer, call, put, refusal
from tests.worker.support import DEADLINE, eventually

MAIL = QueueName("mail")
FIRST, SECOND = WorkerId("01KAAAAAAAAAAAAAAAAAAAAAA1"), WorkerId("01KBBBBBBBBBBBBBBBBBBBBBB2")


def send_heartbeat(store: Store, worker: WorkerId = FIRST, **changes: Any) -> None:
    store.heartbeat(WorkerInfo(id=worker, **{"host": "here", "pid": 7, "queues": (MAIL,), **changes}))


def send_heartbeat_long_ago(folder: Path, seconds: int, worker: WorkerId = FIRST, **changes: Any) -> None:
    clock = ManualClock(now_ms=SystemClock().now_ms() - seconds * 1_000)
    past = open_engine(f"sqlite:///{folder / 'jobs.db'}", clock=clock).store()
    send_heartbeat(past, worker, **changes)
    # Its handle stays open, as that of a process that hangs: a process that sees it closed knows that it is
    # dead.
    KEPT.append(past)


KEPT: list[Store] = []


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    yield
    while KEPT:
        KEPT.pop().close()


@contextmanager
def answering(store: Store, reply: Callable[[CommandKind], str], *workers: WorkerId) -> Iterator[list[str]]:
    """Workers that answer what they are asked, from a handle of their own."""
    over, heard = Event(), list[str]()
    engine = open_engine("sqlite:///jobs.db")

    def listen() -> None:
        own = engine.store()
        while not over.wait(0.02):
            for command in own.take_commands(workers):
                heard.append(f"{command.kind} {command.worker} {command.queue or ''}".strip())
                own.answer_command(command.id, reply(command.kind))
        own.close()

    thread = Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        over.set()
        thread.join(DEADLINE)


# ------------------------------------------------------------------ looking


@pytest.mark.shows("R-WORK-05", "R-WORK-06")
def test_all_workers_are_listed_with_what_they_say_of_themselves(store: Store) -> None:
    send_heartbeat(store, running=(JobId("j1"),), completed=12, failed=3, memory=50 * 2**20, paused=(MAIL,))
    send_heartbeat(store, SECOND, state=WorkerState.STOPPING)

    first, second = answer("workers", "list")["workers"]
    page = call("workers").stdout

    assert (first["id"], first["host"], first["pid"], first["queues"]) == (FIRST, "here", 7, ["mail"])
    assert (first["running"], first["completed"], first["failed"]) == (["j1"], 12, 3)
    assert (first["heartbeat_status"], first["paused"], second["state"]) == ("alive", ["mail"], "stopping")
    assert first["up_ms"] >= 0
    assert "50 MB" in page
    assert "mail (paused)" in page
    assert " ago" in page


def test_the_list_is_what_comes_without_a_word(store: Store) -> None:
    send_heartbeat(store)

    assert answer("workers") == answer("workers", "list") or answer("workers")["workers"][0]["id"] == FIRST
    assert "Usage" in call("workers", "--help").stdout
    assert "(none)" not in call("workers").stdout


@pytest.mark.shows("R-WORK-05", "R-WORK-04")
def test_one_worker_is_shown_with_the_jobs_that_wait_for_it(store: Store) -> None:
    put(store, queue=MAIL)
    send_heartbeat(store, slots=4, memory=2**20)

    found = answer("workers", "show", FIRST[:6])
    page = call("workers", "show", FIRST).stdout

    assert (found["id"], found["slots"], found["depths"]) == (FIRST, 4, {"mail": 1})
    assert "mail: 1" in page
    assert "heartbeat every" in page


@pytest.mark.shows("R-WORK-39")
@pytest.mark.parametrize(("seconds", "status"), [(5, "alive"), (25, "stale"), (35, "dead")])
def test_a_worker_that_misses_two_heartbeats_is_stale_and_three_dead(
    store: Store, folder: Path, seconds: int, status: str
) -> None:
    send_heartbeat_long_ago(folder, seconds)

    [worker] = answer("workers")["workers"]

    assert worker["heartbeat_status"] == status
    assert status in call("workers").stdout


def test_an_id_may_be_shortened_while_it_names_one_worker(store: Store) -> None:
    send_heartbeat(store)
    send_heartbeat(store, SECOND)

    assert answer("workers", "show", "01kb")["id"] == SECOND
    assert refusal("workers", "show", "01K")["status"] == 4  # too short to mean a worker
    assert refusal("workers", "show", "01KC")["status"] == 4
    assert "`forebay workers` lists" in refusal("workers", "show", "absent")["message"]


def test_a_beginning_that_two_workers_share_is_refused_with_both_names(store: Store) -> None:
    send_heartbeat(store, WorkerId("01KAA1"))
    send_heartbeat(store, WorkerId("01KAA2"))

    error = refusal("workers", "stop", "01KAA")

    assert error["status"] == 2
    assert "01KAA1, 01KAA2" in error["message"]


# ------------------------------------------------------------------ asking


@pytest.mark.shows("R-WORK-44")
@pytest.mark.parametrize("kind", ["pause", "resume", "stop", "drain", "halt"])
def test_a_worker_is_asked_and_its_answer_is_told(store: Store, kind: str) -> None:
    send_heartbeat(store)
    with answering(store, lambda kind: f"{kind} it is", FIRST) as heard:
        [reply] = answer("workers", kind, FIRST)["answers"]

    assert heard == [f"{kind} {FIRST}"]
    assert (reply["worker"], reply["answer"], reply["note"]) == (FIRST, f"{kind} it is", "")


def test_all_workers_are_asked_except_the_dead(store: Store, folder: Path) -> None:
    send_heartbeat(store)
    send_heartbeat(store, SECOND)
    send_heartbeat_long_ago(folder, 3_600, WorkerId("dead"))
    with answering(store, lambda kind: "yes", FIRST, SECOND) as heard:
        result = call("workers", "pause", "--all", "--queue", "mail")

    assert sorted(heard) == [f"pause {FIRST} mail", f"pause {SECOND} mail"]
    assert result.exit_code == 0
    assert result.stdout.count("yes") == 2


def test_stopping_all_workers_is_asked_about_first(store: Store) -> None:
    send_heartbeat(store)

    error = refusal("workers", "stop", "--all")

    assert error["status"] == 2
    assert "Stop 1 worker of" in error["message"]
    assert "--yes" in error["message"]
    assert store.take_commands([FIRST]) == []


def test_no_worker_is_asked_without_a_name(store: Store) -> None:
    assert refusal("workers", "pause")["status"] == 2
    assert refusal("workers", "pause", FIRST, "--all")["status"] == 2


def test_where_there_is_no_worker_all_of_them_are_none(store: Store) -> None:
    assert answer("workers", "pause", "--all") == {"answers": []}
    assert "There are no workers." in call("workers", "pause", "--all").stdout


@pytest.mark.shows("R-CLI-23")
def test_stacks_are_printed_as_they_are(store: Store) -> None:
    send_heartbeat(store)
    with answering(store, lambda kind: "first line\n  second line", FIRST):
        page = call("workers", "stacks", FIRST).stdout

    assert page == f"{FIRST}\nfirst line\n  second line\n\n"


@pytest.mark.shows("R-WORK-44")
def test_who_does_not_answer_is_named_with_its_last_heartbeat(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.cli.commands.worker_admin.COMMAND_EXPIRES_MS", 300)
    send_heartbeat_long_ago(folder, 42)

    result = call("workers", "pause", FIRST, "--json")
    reply = json.loads(result.stdout)["answers"][0]

    assert result.exit_code == 6
    assert reply["answer"] is None
    assert reply["note"].startswith("no answer: it may be stuck or dead; its last heartbeat was ")
    assert "no answer: it may be stuck or dead" in call("workers", "pause", FIRST).stdout


def test_a_worker_that_has_heard_and_says_nothing_is_told_apart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.cli.commands.worker_admin.COMMAND_EXPIRES_MS", 3_000)
    send_heartbeat(store)
    listening, over = Event(), Event()

    def take() -> None:
        own = open_engine("sqlite:///jobs.db").store()
        listening.set()
        while not over.wait(0.01):
            own.take_commands([FIRST])
        own.close()

    thread = Thread(target=take, daemon=True)
    thread.start()
    assert listening.wait(DEADLINE)
    result = call("workers", "stop", FIRST)
    over.set()
    thread.join(DEADLINE)

    assert result.exit_code == 6
    assert "it has received it" in result.stdout


def test_a_worker_that_ends_without_an_answer_is_not_waited_for(store: Store) -> None:
    send_heartbeat(store)
    over = Event()

    def leave() -> None:
        own = open_engine("sqlite:///jobs.db").store()
        eventually(lambda: own.take_commands([FIRST]))
        own.remove_worker(FIRST)
        own.close()
        over.set()

    thread = Thread(target=leave, daemon=True)
    thread.start()
    result = call("workers", "stop", FIRST)
    thread.join(DEADLINE)

    assert (over.is_set(), result.exit_code) == (True, 6)
    assert "it has stopped" in result.stdout


def test_an_answer_that_a_worker_gives_just_before_it_ends_is_not_missed(
    store: Store, reader: Reader
) -> None:
    send_heartbeat(store)
    sent = store.send_command(CommandKind.HALT, [FIRST])

    class Look:
        """A reader that is asked for the workers in the very moment in which the last one leaves."""

        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        def workers(self) -> list[WorkerInfo]:
            store.answer_command(sent[0].id, "halting")
            store.remove_worker(FIRST)
            return reader.workers()

    [reply] = wait_for_answers(cast(StoreSession, SimpleNamespace(reader=Look())), sent)

    assert reply.response == "halting"


def test_no_caller_waits_that_does_not_want_to(store: Store) -> None:
    send_heartbeat(store)

    [reply] = answer("workers", "drain", FIRST, "--no-wait")["answers"]

    assert (reply["answer"], reply["note"]) == (None, "sent; its answer is not awaited")
    [command] = store.take_commands([FIRST])
    assert (command.kind, command.actor.startswith("cli:")) == (CommandKind.DRAIN, True)


@pytest.mark.parametrize(("reply", "status"), [("refused: no", 5), ("failed: oh", 1), ("paused", 0)])
def test_a_bad_answer_shows_in_the_status(store: Store, reply: str, status: int) -> None:
    send_heartbeat(store)
    with answering(store, lambda kind: reply, FIRST):
        assert call("workers", "pause", FIRST).exit_code == status


@pytest.mark.shows("R-WORK-44", "R-TEST-16")
def test_a_real_worker_obeys_the_command_line(store: Store) -> None:
    app = Forebay("sqlite:///jobs.db")
    ran: list[int] = []

    @app.task(name="note")
    def note(number: int) -> None:
        ran.append(number)

    worker = Worker(app.engine, app.registry)
    worker.start()
    try:
        [paused] = answer("workers", "pause", worker.id)["answers"]
        job = note.enqueue(1)
        eventually(lambda: answer("workers", "show", worker.id)["state"] == "paused")
        assert ran == []
        answer("workers", "resume", "--all")
        job.wait(DEADLINE)
        [stopped] = answer("workers", "stop", worker.id)["answers"]
        eventually(lambda: worker.is_over)
    finally:
        worker.stop()
        app.close()

    assert paused["answer"].startswith("paused all queues")
    assert stopped["answer"].startswith("stopping")
    assert (ran, answer("workers")["workers"]) == ([1], [])
