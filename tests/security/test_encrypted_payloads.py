"""Encrypted jobs and blobs, from the producer to the reader of the result, on every engine."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from forebay import Forebay, JobFailed, Retry, current_job
from forebay.app.consumer import arguments
from forebay.domain.job import DAY_MS, Job, JobId, NewJob
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.domain.ulid import encode_ulid
from forebay.errors import UnknownEncryptionKey
from forebay.payload.blob_stores import FolderBlobs
from forebay.payload.codec import encode_call
from forebay.stores.factory import open_engine
from tests.cli.command_runner import answer, call
from tests.urls import SHARED, lent_url
from tests.worker.support import eventually

pytestmark = pytest.mark.shows("R-SER-21", "R-SEC-06")

HIDDEN: Final = "hunter2-marked"
OLD: Final = {"2025": bytes(range(32))}
NEW: Final = {"2026": bytes(range(1, 33)), **OLD}
LARGE: Final = HIDDEN * 30_000  # 410 KiB


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with lent_url(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "blobs"
    made.mkdir()
    return made


def stored(url: str, job_id: JobId) -> Job:
    """The job as the store has it."""
    reader = open_engine(url).reader()
    try:
        [job] = reader.jobs([job_id])
        assert job is not None
        return job
    finally:
        reader.close()


def with_tasks(app: Forebay) -> Forebay:
    @app.task(name="echo", retries=0)
    def echo(text: str, *, more: Any = None) -> dict[str, Any]:
        return {"text": text, "more": more}

    return app


def test_arguments_and_results_are_encrypted_in_the_store_and_nowhere_else(url: str) -> None:
    with with_tasks(Forebay(url, encryption_keys=OLD)) as app, app.run_worker(threads=1):
        job = app.enqueue("echo", [HIDDEN], {"more": [1, HIDDEN]})
        result = job.result(timeout=120)
        record = stored(url, job.id)
        searched = app.search()

    assert result == {"text": HIDDEN, "more": [1, HIDDEN]}
    assert record.state is JobState.COMPLETED
    assert HIDDEN.encode() not in record.payload + (record.result or b"")
    assert record.payload.split(b"\n")[0].split()[2].startswith(b"key=2025.")
    assert [one.id for one in searched.jobs] == [job.id]


def test_a_job_waits_for_a_worker_that_has_its_key(url: str) -> None:
    with Forebay(url, encryption_keys=NEW) as producer:
        job = producer.enqueue("echo", [HIDDEN])
    with with_tasks(Forebay(url, encryption_keys=OLD)) as app, app.run_worker(threads=1):
        other = app.enqueue("echo", ["x"])
        assert other.result(timeout=120) == {"text": "x", "more": None}
        [held] = app.client.read(lambda reader: reader.lanes())
        assert (held.lane.rpartition(".")[0], held.jobs) == ("requires:key 2026", 1)

    with with_tasks(Forebay(url, encryption_keys=NEW)) as app, app.run_worker(threads=1):
        found = app.job(job.id)
        assert found.result(timeout=120) == {"text": HIDDEN, "more": None}
        assert app.job(other.id).result(timeout=0) == {"text": "x", "more": None}
        assert found.refresh().failures == 0


def test_schedules_and_consumers_are_encrypted_too(url: str) -> None:
    with Forebay(url, encryption_keys=NEW) as app:
        app.task(name="later")(lambda text: None)
        first = app.schedules.save("tidy", "later", [HIDDEN], cron="0 0 1 1 *")
        job = app.enqueue("later", [HIDDEN])
        consumer = app.consumer()
        [claimed] = consumer.claim()
        assert arguments(claimed) == ((HIDDEN,), {})
        consumer.complete(claimed, {"said": HIDDEN})
        consumer.close()
        assert job.result(timeout=0) == {"said": HIDDEN}
        again = app.schedules.save("tidy", "later", [HIDDEN], cron="0 0 1 1 *")
        assert again.definition == first.definition

    reader = open_engine(url).reader()
    [kept] = reader.schedules(["tidy"])
    with Forebay(url, encryption_keys={**OLD, **NEW}) as app:
        app.schedules.pause("tidy")
        app.schedules.resume("tidy")
    [renewed] = reader.schedules(["tidy"])
    reader.close()
    assert b" key=2026." in kept.definition.job.payload
    assert b" key=2025." in renewed.definition.job.payload
    assert HIDDEN.encode() not in kept.definition.job.payload + (stored(url, job.id).result or b"")
    with Forebay(url) as stranger:
        [seen] = stranger.client.jobs([job.id])
        assert seen is not None
        with pytest.raises(UnknownEncryptionKey, match=r"the key 2026\."):
            arguments(seen)
        with pytest.raises(UnknownEncryptionKey):
            stranger.job(job.id).result(timeout=0)


def test_steps_and_follow_ups_are_encrypted_too(url: str) -> None:
    with with_tasks(Forebay(url, encryption_keys=NEW)) as app:

        @app.task(name="steps", retries=1)
        def steps() -> str:
            job = current_job()
            hidden_text = job.step("say", lambda: HIDDEN)
            if job.attempt == 1:
                raise Retry("once more", after=0)
            job.follow_up(app.registry["echo"].using(tags=["next"]).job(hidden_text))
            return hidden_text

        with app.run_worker(threads=1):
            job = steps.enqueue()
            assert job.result(timeout=120) == HIDDEN
            [follow_up] = app.search(JobQuery(tags=("next",))).jobs
            assert app.job(follow_up.id).result(timeout=120)["text"] == HIDDEN
        history = job.history()

    reader = open_engine(url).reader()
    kept = reader.progress(job.id)
    reader.close()
    assert HIDDEN.encode() in history.progress.steps[0].result
    assert HIDDEN.encode() not in kept.steps[0].result
    assert HIDDEN.encode() not in stored(url, follow_up.id).payload


def test_what_a_job_reads_while_it_runs_waits_for_a_key_too(url: str) -> None:
    def with_readers(app: Forebay) -> Forebay:
        @app.task(name="steps", retries=1)
        def steps() -> str:
            hidden_text = current_job().step("say", lambda: HIDDEN)
            if current_job().attempt == 1:
                raise Retry("tomorrow", after=86_400)
            return hidden_text

        @app.task(name="child", retries=0)
        async def child() -> list[Any]:
            return await current_job().parent_results_async()

        return with_tasks(app)

    with with_readers(Forebay(url, encryption_keys=NEW)) as app, app.run_worker(threads=1):
        parent, stepping = app.enqueue("echo", [HIDDEN]), app.enqueue("steps")
        parent.result(timeout=120)
        eventually(lambda: stepping.refresh().state is JobState.RETRYING)

    with with_readers(Forebay(url, encryption_keys=OLD)) as app, app.run_worker(threads=1):
        child = app.enqueue("child", depends_on=[parent.id])
        app.client.update(stepping.id, JobUpdate(delay_ms=0))
        eventually(lambda: sum(one.jobs for one in app.client.read(lambda reader: reader.lanes())) == 2)
        [held] = app.client.read(lambda reader: reader.lanes())
        assert held.lane.startswith("requires:key 2026.")

    with with_readers(Forebay(url, encryption_keys=NEW)) as app, app.run_worker(threads=1):
        assert app.job(stepping.id).result(timeout=120) == HIDDEN
        assert app.job(child.id).result(timeout=120) == [{"text": HIDDEN, "more": None}]
        assert (app.job(stepping.id).refresh().failures, app.job(child.id).refresh().failures) == (1, 0)


def test_what_encryption_adds_is_not_counted(url: str) -> None:
    with with_tasks(Forebay(url, encryption_keys=NEW)) as app:

        @app.task(name="count", retries=0)
        def count(text: str) -> int:
            return len(text)

        text = "x" * (MAX_PAYLOAD - len(count.job("").payload))

        @app.task(name="first", retries=0)
        def first() -> None:
            current_job().follow_up(count.using(tags=["next"]).job(text))

        app.schedules.save("large", "count", [text], cron="0 0 1 1 *")
        jobs = app.enqueue_many([count.job(text), count.job("x")], atomic=False)
        assert [job.error for job in jobs] == [None, None]
        with app.run_worker(threads=1):
            assert first.enqueue().wait(timeout=120).state is JobState.COMPLETED
            [follow_up] = app.search(JobQuery(tags=("next",))).jobs
            for job in (jobs[0], app.job(follow_up.id), app.schedules.fire("large")):
                assert job.result(timeout=120) == len(text)


def test_a_payload_that_was_moved_to_another_task_is_dead(url: str) -> None:
    with Forebay(url, encryption_keys=OLD) as app:
        job = app.enqueue("other", [HIDDEN])
        encrypted = stored(url, job.id).payload
        app.job(job.id).cancel()
    with with_tasks(Forebay(url, encryption_keys=OLD)) as app, app.run_worker(threads=1):
        moved = app.enqueue(NewJob(task="echo", payload=encrypted))
        with pytest.raises(JobFailed, match="brought from elsewhere"):
            moved.result(timeout=120)


@pytest.mark.shows("R-SER-18", "R-DONE-06")
def test_large_ones_are_kept_as_blobs_and_go_with_their_job(url: str, folder: Path) -> None:
    with with_tasks(Forebay(url, encryption_keys=OLD, blob_store=folder)) as app, app.run_worker(threads=1):
        job = app.enqueue("echo", [LARGE])
        assert job.result(timeout=120) == {"text": LARGE, "more": None}
        record = stored(url, job.id)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(record.payload) + len(record.result or b"") < 1_000
        assert [path.parent.name for path in files] == [job.id, job.id]
        assert not any(HIDDEN.encode() in path.read_bytes() for path in files)

        app.client.write(lambda store: store.delete([job.id]))

    assert not any(path.is_file() for path in folder.rglob("*"))


@pytest.mark.shows("R-CFG-35")
def test_what_has_more_than_256_kib_is_kept_as_a_blob(folder: Path) -> None:
    frame = len(encode_call([""], {}))
    with Forebay("memory://", blob_store=folder) as app:
        for size in (262_144, 262_145):
            payload = encode_call(["x" * (size - frame)], {})
            app.client.enqueue([NewJob(task="echo", payload=payload, id=JobId(f"of-{len(payload)}"))])

    assert [path.parent.name for path in folder.rglob("*") if path.is_file()] == ["of-262145"]


@pytest.mark.shows("R-SER-18", "R-SER-19")
def test_a_blob_that_is_gone_or_changed_is_never_run(url: str, folder: Path) -> None:
    with with_tasks(Forebay(url, blob_store=str(folder))) as app:
        gone, changed, whole = (app.enqueue("echo", [LARGE + str(n)]) for n in range(3))
        [file] = folder.glob(f"*/{gone.id}/*")
        file.unlink()
        [file] = folder.glob(f"*/{changed.id}/*")
        file.write_bytes(file.read_bytes().replace(b"hunter2", b"hunter3", 1))

        with app.run_worker(threads=1):
            with pytest.raises(JobFailed, match="is missing"):
                gone.result(timeout=120)
            with pytest.raises(JobFailed, match="was changed"):
                changed.result(timeout=120)
            assert whole.result(timeout=120)["text"] == LARGE + "2"


@pytest.mark.shows("R-SER-18")
def test_a_worker_without_the_blobs_leaves_the_job_to_one_that_has_them(url: str, folder: Path) -> None:
    with Forebay(url, blob_store=folder) as producer:
        job = producer.enqueue("echo", [LARGE])
    with with_tasks(Forebay(url)) as app, app.run_worker(threads=1):
        assert app.enqueue("echo", ["x"]).result(timeout=120)["text"] == "x"
        [held] = app.client.read(lambda reader: reader.lanes())
        assert held.lane == "requires:blobs"

    with with_tasks(Forebay(url, blob_store=folder)) as app, app.run_worker(threads=1):
        assert app.job(job.id).result(timeout=120)["text"] == LARGE


def test_where_the_blobs_are_away_payloads_stay_in_the_store(url: str, folder: Path) -> None:
    with with_tasks(Forebay(url, blob_store=folder)) as app, app.run_worker(threads=1):
        folder.rmdir()
        job = app.enqueue("echo", [LARGE])
        assert job.result(timeout=120)["text"] == LARGE

    assert len(stored(url, job.id).payload) > len(LARGE)


@pytest.mark.shows("R-SER-18")
def test_blobs_of_no_job_are_collected_after_a_week(url: str, folder: Path) -> None:
    blobs = FolderBlobs(folder)
    with Forebay(url, blob_store=blobs) as app:
        job = app.enqueue("echo", [LARGE])
        [own] = folder.iterdir()
        young, old = (encode_ulid((app.clock.now_ms() - days * DAY_MS) << 80) for days in (6, 8))
        owners = ((job.id, old), ("absent", old), ("absent", young))
        names = [f"{own.name}/{owner}/payload.{at}.{'0' * 64}" for owner, at in owners]
        for name in names:
            blobs.put(name, b"x")

        app.client.write(lambda store: store.prune())

    left = blobs.names(own.name)
    assert [name in left for name in names] == [True, False, True]


@pytest.mark.shows("R-EDGE-87")
def test_commands_open_with_the_keys_of_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    key = b64encode(OLD["2025"]).decode()
    with Forebay(url, encryption_keys=OLD) as app:
        job = app.enqueue("echo", ["hello"])

    shown = answer("jobs", "show", job.id, "--url", url)
    assert shown["args"] is None
    assert shown["payload_error"].startswith("the payload is encrypted with the key 2025.")
    monkeypatch.setenv("FOREBAY_ENCRYPTION_KEYS", f"2025={key}")
    assert answer("jobs", "show", job.id, "--url", url)["args"] == ["hello"]
    output = call("doctor", "--url", url).output + call("doctor", "--url", url, "--json").output
    assert "encryption_keys = ***" in output
    assert key not in output
    made = answer("enqueue", "echo", "x", "--url", url)["id"]
    assert stored(url, JobId(made)).payload.split()[2].startswith(b"key=2025.")
