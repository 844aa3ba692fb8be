"""Encrypted payloads open in their own queue and store: a copied ciphertext cannot be used elsewhere."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from forebay import Forebay, JobFailed, current_job
from forebay.clock import SystemClock
from forebay.domain.api_key import Grant
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed
from forebay.domain.progress import ProgressUpdate, StepResult
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, PayloadError
from forebay.operations.store_move import MoveEndpoint, StoreMover
from forebay.payload.codec import decode_result, encode_call, encode_result, frame, parse_frame
from forebay.payload.encryption_keys import EncryptionKeys
from forebay.payload.engine_wrapper import wrap_engine
from forebay.service.api_keys import ApiKeyAdmin as ApiKeys
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.service.live_server import serving
from tests.urls import SHARED, lent_url, url_of

pytestmark = pytest.mark.shows("R-SER-21", "R-SEC-06")

KEY: Final = {"2026": bytes(range(32))}
MINE, OTHER = QueueName("mine"), QueueName("other")
HIDDEN: Final = "4111-hidden"
W1: Final = WorkerId("w1")
DEADLINE: Final = 120.0


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with lent_url(request.param, tmp_path) as url:
        yield url


def with_tasks(app: Forebay) -> Forebay:
    @app.task(name="echo", retries=0)
    def echo(text: str) -> str:
        return text

    return app


def stored(url: str, job_id: JobId) -> Job:
    """The job as the store has it."""
    with closing(open_engine(url).reader()) as reader:
        [job] = reader.jobs([job_id])
        assert job is not None
        return job


def insert_raw(url: str, job: NewJob) -> JobId:
    """Insert a job as a writer to the store itself does, without keys."""
    with closing(open_engine(url).store()) as store:
        [receipt] = store.insert([job])
        assert receipt.id is not None
        return receipt.id


def encrypt_gcm(data: bytes, about: str) -> bytes:
    """Encrypt as releases before `alg` did."""
    nonce = os.urandom(12)
    encrypted = nonce + AESGCM(KEY["2026"]).encrypt(nonce, data, about.encode())
    return frame(encrypted, key=EncryptionKeys(KEY).names[0])


# ------------------------------------------------------------------ in programs of the store


def test_a_copied_payload_cannot_be_inserted_into_another_queue(url: str) -> None:
    with Forebay(url, encryption_keys=KEY) as app:
        copied = stored(url, app.enqueue("echo", [HIDDEN], queue=OTHER).id).payload

        with pytest.raises(PayloadError, match="encrypted for queue other, not for queue mine"):
            app.enqueue(NewJob(task="echo", queue=MINE, payload=copied))
        definition = ScheduleDefinition(name="d", job=NewJob(task="echo", payload=copied), cron="0 0 * * *")
        with pytest.raises(PayloadError, match="encrypted for queue other, not for queue default"):
            app.client.write(lambda store: store.save_schedule(Schedule(definition=definition)))

        assert MINE not in {job.queue for job in app.search().jobs}


def test_a_payload_whose_header_names_another_queue_is_dead(url: str) -> None:
    with with_tasks(Forebay(url, encryption_keys=KEY)) as app:
        copied = stored(url, app.enqueue("echo", [HIDDEN], queue=OTHER).id).payload
        fields, body = parse_frame(copied) or ({}, b"")
        edited = frame(body, **{**fields, "queue": MINE})
        job = app.job(insert_raw(url, NewJob(task="echo", queue=MINE, payload=edited)))

        with (
            app.run_worker(queues=[MINE], threads=1),
            pytest.raises(JobFailed, match="brought from elsewhere"),
        ):
            job.result(timeout=DEADLINE)


def test_a_payload_of_another_store_is_dead(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with Forebay(other, encryption_keys=KEY) as app:
        copied = stored(other, app.enqueue("echo", [HIDDEN]).id).payload
    with with_tasks(Forebay(url, encryption_keys=KEY)) as app, app.run_worker(threads=1):
        job = app.job(insert_raw(url, NewJob(task="echo", payload=copied)))

        with pytest.raises(JobFailed, match="encrypted for another store"):
            job.result(timeout=DEADLINE)


def test_payloads_of_earlier_releases_still_open(url: str) -> None:
    payload = encrypt_gcm(encode_call([HIDDEN], {}), "payload echo")
    with with_tasks(Forebay(url, encryption_keys=KEY)) as app, app.run_worker(threads=1):
        assert app.enqueue(NewJob(task="echo", payload=payload)).result(timeout=DEADLINE) == HIDDEN


def test_a_job_that_was_moved_to_another_queue_still_runs(url: str) -> None:
    """By programs without keys too: neither update nor revive has to read the payload."""
    with with_tasks(Forebay(url, encryption_keys=KEY)) as app:
        updated, revived = (app.enqueue("echo", [HIDDEN], queue=OTHER) for _ in range(2))
        revived.cancel()
        with Forebay(url) as stranger:
            stranger.client.update(updated.id, JobUpdate(queue=MINE))
            stranger.client.write(lambda store: store.revive([revived.id], queue=MINE))

        with app.run_worker(queues=[MINE], threads=1):
            assert [job.result(timeout=DEADLINE) for job in (updated, revived)] == [HIDDEN, HIDDEN]


def test_a_transaction_of_the_caller_makes_no_id_of_the_store(tmp_path: Path) -> None:
    """Its lock would block the writer of the id. Until there is an id, payloads are bound to their queue."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with with_tasks(Forebay(url, encryption_keys=KEY)) as app:
        with Forebay(url) as stranger:
            stranger.enqueue("other", queue=OTHER)  # makes the tables
        first = enqueued_within(app, tmp_path / "jobs.db")
        app.enqueue("echo", ["x"])
        second = enqueued_within(app, tmp_path / "jobs.db")

        headers = [(parse_frame(stored(url, job_id).payload) or ({}, b""))[0] for job_id in (first, second)]
        assert [header["queue"] for header in headers] == ["default", "default"]
        assert ["store" in header for header in headers] == [False, True]
        with app.run_worker(threads=1):
            assert [app.job(one).result(timeout=DEADLINE) for one in (first, second)] == [HIDDEN, HIDDEN]


def enqueued_within(app: Forebay, path: Path) -> JobId:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        job_id = app.registry["echo"].enqueue_tx(connection, HIDDEN).id
        connection.execute("commit")
        return job_id


@pytest.mark.parametrize("is_new", [True, False], ids=["an empty store", "a store with an id of its own"])
def test_jobs_that_were_moved_to_another_store_still_run(url: str, tmp_path: Path, *, is_new: bool) -> None:
    new = f"sqlite:///{tmp_path}/new.db"
    with with_tasks(Forebay(url, encryption_keys=KEY)) as app, app.run_worker(threads=1):
        done = app.enqueue("echo", [HIDDEN])
        done.result(timeout=DEADLINE)
    with Forebay(url, encryption_keys=KEY) as app:
        waiting = app.enqueue("echo", [HIDDEN])
    with with_tasks(Forebay(new, encryption_keys=KEY)) as app:
        own = None if is_new else app.enqueue("echo", ["own"])
        move(url, new)

        with app.run_worker(threads=1):
            assert app.job(waiting.id).result(timeout=DEADLINE) == HIDDEN
            assert app.job(done.id).result(timeout=0) == HIDDEN
            assert own is None or own.result(timeout=DEADLINE) == "own"
    third = f"sqlite:///{tmp_path}/third.db"
    with Forebay(third, encryption_keys=KEY) as app:
        app.enqueue("echo", ["own"])
        move(new, third)
        assert app.job(done.id).result(timeout=0) == HIDDEN


def move(old: str, new: str) -> None:
    with ExitStack() as stack:
        places: list[MoveEndpoint] = []
        for url in (old, new):
            engine = open_engine(url)  # without keys, as the command opens it
            store, reader = (stack.enter_context(closing(one)) for one in (engine.store(), engine.reader()))
            places.append(MoveEndpoint(url, engine.location, store, reader))  # type: ignore[arg-type]
        mover = StoreMover(places[0], places[1], SystemClock(), settle=lambda: None)
        mover.move(60_000)
        mover.finish(mover.compare(), 60_000)


# ------------------------------------------------------------------ over the service


class Tenant:
    """A holder of an API key for one queue, who has read the database of the server."""

    def __init__(self, engine: Engine, near: Engine) -> None:
        self.store: Store = engine.store()
        self.reader = engine.reader()
        self.near = near

    def insert(self, payload: bytes, **fields: Any) -> JobId:
        [receipt] = self.store.insert([NewJob(task="t", queue=MINE, payload=payload, **fields)])
        assert receipt.id is not None
        return receipt.id

    def claim(self) -> Job:
        [job] = self.store.settle_and_claim(W1, claims=[QueueClaim(MINE, 1)], room=1).jobs
        return job


@contextmanager
def tenant(engine: Engine) -> Iterator[Tenant]:
    with serving(engine, security=ServerSecurity(requires_keys=True)) as served, ExitStack() as stack:
        near = served.service.pool.engine
        store, reader = (stack.enter_context(closing(one)) for one in (near.store(), near.reader()))
        store.save_queue(MINE)  # type: ignore[union-attr]
        keys = ApiKeys(store, reader, actor="ann")  # type: ignore[arg-type]
        token = keys.create(
            "tenant", [Grant.parse(f"{role}:{MINE}") for role in ("produce", "consume")]
        ).token
        found = Tenant(open_engine(served.address, key=token), near)
        stack.callback(found.store.close)
        stack.callback(found.reader.close)
        yield found


@pytest.fixture(params=["a server with keys", "a server without keys"])
def attacker(request: pytest.FixtureRequest) -> Iterator[Tenant]:
    engine = open_engine("memory://")
    encrypted = wrap_engine(engine, KEY)
    with tenant(encrypted if request.param == "a server with keys" else engine) as found:
        found.near = encrypted
        yield found


def of_other_queue(near: Engine) -> bytes:
    """The ciphertext of a job of the other queue, as a copy of the database has it."""
    with closing(near.store()) as store:
        [receipt] = store.insert([NewJob(task="t", queue=OTHER, payload=encode_call([HIDDEN], {}))])
    with closing(near.reader()) as reader:
        [job] = reader._inner.jobs([receipt.id])  # type: ignore[attr-defined]
    assert b" key=2026." in job.payload
    payload: bytes = job.payload
    return payload


COPIES: Final[list[Callable[[Engine], bytes]]] = [
    of_other_queue,
    lambda _: encrypt_gcm(encode_call([HIDDEN], {}), "payload t"),
]


@pytest.mark.parametrize("copy", COPIES, ids=["this release", "an earlier release"])
def test_a_tenant_cannot_have_a_copied_payload_decrypted(
    attacker: Tenant, copy: Callable[[Engine], bytes]
) -> None:
    payload = copy(attacker.near)

    with pytest.raises(PayloadError, match="not for queue mine"):
        attacker.insert(payload)

    attacker.insert(encode_call([], {}))
    job = attacker.claim()
    follow_up = NewJob(task="t", queue=MINE, payload=payload)
    with pytest.raises(PayloadError, match="not for queue mine"):
        attacker.store.settle_and_claim(
            W1, [replace(decide(job, Completed(b""), 0.0), follow_ups=(follow_up,))]
        )


def test_a_tenant_cannot_have_a_copied_result_decrypted(attacker: Tenant) -> None:
    """A deleted job of another queue leaves its id, under which the tenant enqueues a job of its own."""
    secret = encode_result(HIDDEN)
    keys = EncryptionKeys(KEY)
    copies = [
        keys.encrypt(secret, "result order-7", queue=OTHER),
        encrypt_gcm(secret, "result order-7"),
    ]
    step = keys.encrypt(secret, "step order-7", queue=OTHER)
    attacker.insert(encode_call([], {}), id=JobId("order-7"))
    job = attacker.claim()
    lease = Lease(job.id, job.attempt)

    noted = attacker.store.settle_and_claim(
        W1, updates=[ProgressUpdate(lease=lease, steps=(StepResult(name="s", result=step),), queue=MINE)]
    )
    assert [one.lease for one in noted.refused_updates] == [lease]
    for copied in copies:
        answer = attacker.store.settle_and_claim(W1, [decide(job, Completed(copied), 0.0)])
        assert [one.lease for one in answer.refused] == [lease]

    attacker.store.settle_and_claim(W1, [decide(job, Completed(secret), 0.0)])
    [ended] = attacker.reader.jobs([job.id])
    assert ended is not None
    assert ended.state is JobState.COMPLETED
    assert decode_result(ended.result or b"") == HIDDEN  # its own, which it has sent in the clear


def test_programs_with_keys_work_behind_a_server_with_the_same_keys() -> None:
    engine = wrap_engine(open_engine("memory://"), KEY)
    with serving(engine, security=ServerSecurity(requires_keys=True)) as served:
        with closing(engine.store()) as store, closing(engine.reader()) as reader:
            for name in (MINE, QueueName("more")):
                store.save_queue(name)
            grants = [
                Grant.parse(f"{role}:{name}") for role in ("produce", "consume") for name in (MINE, "more")
            ]
            token = ApiKeys(store, reader, actor="ann").create("program", grants).token
        with Forebay(served.address, api_key=token, encryption_keys=KEY) as app:

            @app.task(name="first", queue=MINE, retries=0)
            def first() -> str:
                job = current_job()
                hidden_text = job.step("say", lambda: HIDDEN)
                job.follow_up(app.registry["second"].job(hidden_text))
                return hidden_text

            @app.task(name="second", queue="more", retries=0)
            def second(text: str) -> str:
                return text

            with app.run_worker(queues=[MINE, "more"], threads=1):
                assert first.enqueue().result(timeout=DEADLINE) == HIDDEN


# ------------------------------------------------------------------ encryption is required


def test_a_program_that_requires_encryption_runs_nothing_that_is_plain(url: str) -> None:
    with Forebay(url) as stranger:
        plain = stranger.enqueue("echo", [HIDDEN])
    with (
        with_tasks(Forebay(url, encryption_keys=KEY, require_encryption=True)) as app,
        app.run_worker(threads=1),
    ):
        with pytest.raises(JobFailed, match="not encrypted, which this program requires"):
            app.job(plain.id).result(timeout=DEADLINE)
        assert app.enqueue("echo", ["mine"]).result(timeout=DEADLINE) == "mine"
        with pytest.raises(PayloadError, match="not encrypted, which this program requires"):
            app.enqueue(NewJob(task="echo", payload=frame(b"{}", other="field")))


def test_to_require_encryption_takes_a_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="require_encryption needs encryption_keys"):
        Forebay(url_of("sqlite", tmp_path), require_encryption=True)
