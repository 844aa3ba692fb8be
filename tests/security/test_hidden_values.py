"""What a key does not allow is told by no answer, not even by the difference between two of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay import Forebay
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed
from forebay.domain.progress import JobProgress, LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.settlement import decide
from forebay.domain.stored_document import Document
from forebay.errors import ConfigError, Forbidden, PayloadError
from forebay.payload.blob_stores import BlobName
from forebay.payload.codec import check_new_payload, decode_result, encode_result, frame
from forebay.payload.masking import MASK
from forebay.service.http.embedded_auth import EmbeddedUser
from forebay.stores.contract.claims_and_results import QueueClaim
from tests.security.grants import Guarded, guarded

MINE, OTHER = QueueName("mine"), QueueName("other")
GRANTS = {
    "admin": ["admin"],
    "producer": [f"produce:{MINE}"],
    "consumer": [f"consume:{MINE}"],
    "viewer": [f"view:{MINE}"],
    "operator": ["operate"],
}
W1 = WorkerId("w1")
STORE, JOB = "01ARZ3NDEKTSV4RRFFQ69G5FAV", JobId("01BX5ZZKBKACTAV9WEVGEMMVRY")


@pytest.fixture(scope="module")
def world() -> Iterator[Guarded]:
    with guarded(GRANTS, (MINE, OTHER)) as found:
        yield found


@pytest.fixture(scope="module")
def completed(world: Guarded) -> JobId:
    """A completed job that has returned, logged and kept something secret."""
    world.store.insert([NewJob(task="t", queue=MINE)])
    [job] = world.store.settle_and_claim(W1, claims=[QueueClaim(MINE, 1)], room=1).jobs
    secret = encode_result({"user": "ann", "password": "hunter2"})
    note = ProgressUpdate(
        lease=Lease(job.id, job.attempt),
        progress=Progress(message="pin=hunter2 for ann"),
        lines=(LogLine(at=1, level="info", text="ann logs in, token: hunter2"),),
        steps=(StepResult(name="login", result=secret),),
    )
    world.store.settle_and_claim(W1, updates=[note])
    world.store.settle_and_claim(W1, [decide(job, Completed(secret), 0)])
    return job.id


@pytest.mark.shows("R-SEC-13")
@pytest.mark.parametrize(
    ("name", "is_shown"),
    [("admin", True), ("producer", True), ("consumer", True), ("viewer", False), ("operator", False)],
)
def test_results_steps_and_lines_are_masked_for_who_only_looks(
    world: Guarded, completed: JobId, name: str, is_shown: bool
) -> None:
    holder, shown = world[name], "hunter2" if is_shown else MASK
    if name != "consumer":  # who may not ask for results alone
        found = holder.ask("GET", f"/v1/jobs/{completed}/result").json()["result"]
        assert found == {"user": "ann", "password": shown}
    [job] = holder.reader.jobs([completed])
    timeline = holder.reader.history(completed)
    assert timeline is not None
    for one in (job, timeline.job):
        assert one is not None
        result = one.result or b""
        assert decode_result(result) == {"user": "ann", "password": shown}

    for notes in (holder.reader.progress(completed), timeline.progress):
        assert notes.progress is not None
        assert notes.progress.message == f"pin={shown} for ann"
        assert [line.text for line in notes.lines] == [f"ann logs in, token: {shown}"]
        assert [decode_result(step.result)["password"] for step in notes.steps] == [shown]


@pytest.mark.shows("R-SEC-13")
def test_notes_of_a_hidden_queue_are_as_good_as_none(world: Guarded) -> None:
    world.store.insert([NewJob(task="t", queue=OTHER)])
    [job] = world.store.settle_and_claim(W1, claims=[QueueClaim(OTHER, 1)], room=1).jobs
    world.store.settle_and_claim(
        W1, updates=[ProgressUpdate(lease=Lease(job.id, job.attempt), progress=Progress(done=1))]
    )

    for name in ("producer", "viewer"):
        assert world[name].reader.progress(job.id) == JobProgress()
        assert world[name].reader.progress(JobId("unknown")) == JobProgress()
    assert world["operator"].reader.progress(job.id).progress is not None


@pytest.mark.shows("R-SEC-13")
def test_documents_of_unknown_kinds_are_for_who_may_see_keys(world: Guarded) -> None:
    for kind in ("store_move", "moving", "copied", "later"):
        world.store.save_document(Document(kind=kind, name="n", body="{}"))
        for name in ("producer", "consumer", "viewer", "operator"):
            with pytest.raises(Forbidden, match="may not keys"):
                world[name].reader.documents(kind)
        assert len(world["admin"].reader.documents(kind)) == 1
    # Programs with a place for blobs name theirs by the id of the store.
    assert world["producer"].reader.documents("blob_prefix") == []


@pytest.mark.shows("R-SEC-13")
def test_a_taken_id_does_not_tell_how_a_job_of_a_hidden_queue_stands(world: Guarded) -> None:
    jobs = [NewJob(id=JobId(f"{queue}-taken"), task="t", queue=queue) for queue in (MINE, OTHER)]
    world.store.insert(jobs)
    requested = [NewJob(id=job.id, task="t", queue=MINE) for job in jobs]

    def answer_to(name: str) -> list[tuple[bool, JobState | None]]:
        receipts = world[name].store.insert(requested, on_conflict="ignore")
        return [(one.is_new, one.state) for one in receipts]

    assert answer_to("producer") == [(False, JobState.PENDING), (False, None)]
    assert answer_to("admin") == [(False, JobState.PENDING)] * 2


@pytest.mark.shows("R-SEC-13")
def test_an_idempotency_key_does_not_tell_whether_a_masked_value_was_guessed(world: Guarded) -> None:
    def answer_to(user: str, guess: str) -> tuple[int, bool | None]:
        kwargs = {"user": user, "password": guess}
        body = {"task": "t", "queue": MINE, "idempotency_key": "k", "kwargs": kwargs}
        answer = world["producer"].ask("POST", "/v1/jobs", body)
        return answer.status_code, answer.json().get("is_duplicate")

    assert answer_to("ann", "hunter2") == (201, False)
    assert answer_to("ann", "hunter2") == answer_to("ann", "hunter3") == (201, True)
    assert answer_to("bob", "hunter2") == (409, None)


@pytest.mark.parametrize(
    ("store", "job", "what"),
    [(str(JOB), STORE, "payload"), (STORE, STORE, "payload"), (STORE, str(JOB), "result")],
)
def test_a_payload_refers_to_the_blob_of_its_own_payload_alone(store: str, job: str, what: str) -> None:
    own = str(BlobName(STORE, JOB, "payload", STORE, "0" * 64))
    other = str(BlobName(store, JobId(job), what, STORE, "0" * 64))

    check_new_payload(frame(b"", blob=own), JOB)
    for name in (other, str(JOB), f"{JOB}/payload"):
        with pytest.raises(PayloadError, match="the blob of another job"):
            check_new_payload(frame(b"", blob=name), JOB)


def test_an_actor_has_no_sign_that_would_cut_its_name() -> None:
    with pytest.raises(ConfigError, match="'root#1' cannot be an actor of the audit log"):
        EmbeddedUser("root#1")
    with pytest.raises(ConfigError, match="'root#1' cannot be an actor of the audit log"):
        Forebay("memory://", actor="root#1")
