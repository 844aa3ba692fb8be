"""Every text that a user can send is refused with a word about it, or is kept, given back and found as it is,
and nothing else is touched: on every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit, task_scope
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import DEFAULT_QUEUE, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.progress import LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.schedule_runs import plan_advance, plan_runs
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.errors import ConfigError, ForebayError, InvalidJob
from forebay.payload.codec import decode_call, encode_call
from forebay.stores.contract.claims_and_results import ActionResult, QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.security.nasty import HELD, NASTY, REFUSED
from tests.stores.support import everything

pytestmark = pytest.mark.shows("R-SEC-02", "R-SEC-10")

CANARY: Final = QueueName("canary")
MANY: Final = len(HELD)


def put(store: Store, **named: tuple[Any, ...]) -> list[JobId]:
    """One job for each nasty text, all in one insert."""
    rows = [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]
    receipts = store.insert([NewJob(**{"task": "t", **row}) for row in rows])
    assert all(receipt.is_new for receipt in receipts)
    return [receipt.id for receipt in receipts if receipt.id is not None]


def changed(field: str, value: Any) -> dict[str, Any]:
    return {"task": "t", field: value}


def canary(store: Store) -> JobId:
    """A job that no request means."""
    [receipt] = store.insert([NewJob(task="canary", queue=CANARY, tags=("canary",), metadata={"canary": 1})])
    assert receipt.id is not None
    return receipt.id


def found(reader: Reader, **conditions: Any) -> list[JobId]:
    return [job.id for job in everything(reader, JobQuery(**conditions))]


def nothing(ask: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether a question is refused, or answered with nothing."""
    try:
        answer = ask(*args, **kwargs)
    except ForebayError:
        return True
    return not answer or (isinstance(answer, list) and not any(map(_is_something, answer)))


def _is_something(answer: Any) -> bool:
    return bool(answer.applied) if isinstance(answer, ActionResult) else answer is not None


def jobs_in(reader: Reader, queue: QueueName) -> int:
    return sum(counts.total for counts in reader.counts([queue]).values())


def load_jobs(reader: Reader, ids: list[JobId]) -> list[Job]:
    jobs = [job for job in reader.jobs(ids) if job is not None]
    assert len(jobs) == len(ids)
    return jobs


def claim_all(store: Store, worker: WorkerId) -> list[Job]:
    """All there is of the default queue, however many claims that takes."""
    jobs: list[Job] = []
    while claimed := store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT_QUEUE, 200)], room=200).jobs:
        jobs += claimed
    return jobs


# ------------------------------------------------------------------ jobs


@pytest.mark.parametrize(
    "field",
    ["task", "queue", "id", "unique_key", "idempotency_key", "correlation_id", "parent_id", "sequence"],
)
def test_what_cannot_be_a_name_is_refused_with_the_field(field: str) -> None:
    for text in REFUSED:
        with pytest.raises(InvalidJob) as caught:
            NewJob(**changed(field, text))
        assert caught.value.field == field
        assert len(str(caught.value)) < 12_000


def test_tags_keys_and_kinds_are_refused_in_the_same_way() -> None:
    for text in REFUSED:
        for field, value in (("tags", (text,)), ("limit_keys", {"host": text}), ("limit_keys", {text: "h"})):
            with pytest.raises(InvalidJob) as caught:
                NewJob(**changed(field, value))
            assert caught.value.field == field


def test_every_name_and_key_of_a_job_comes_back_and_is_found_alone(store: Store, reader: Reader) -> None:
    bystander = canary(store)
    ids = put(
        store,
        id=HELD,
        task=HELD,
        unique_key=HELD,
        idempotency_key=HELD,
        correlation_id=HELD,
        parent_id=HELD,
        tags=tuple((text,) for text in HELD),
        metadata=tuple({text: text} for text in HELD),
        limit_keys=tuple({"host": text} for text in HELD),
    )

    assert ids == list(HELD)
    for text, job in zip(HELD, load_jobs(reader, ids), strict=True):
        assert (job.id, job.task, job.unique_key, job.idempotency_key, job.correlation_id) == (text,) * 5
        assert (job.parent_id, job.tags, job.metadata) == (text, (text,), {text: text})
        assert job.limit_keys == {"host": text}
        for conditions in (
            {"tasks": (text,)},
            {"unique_key": text},
            {"idempotency_key": text},
            {"correlation_id": text},
            {"parent_id": text},
            {"tags": (text,)},
            {"metadata": {text: text}},
        ):
            assert found(reader, **conditions) == [text], conditions
    assert reader.jobs([bystander])[0] is not None


def test_a_taken_key_is_its_holders_alone(store: Store, reader: Reader) -> None:
    ids = put(store, unique_key=HELD)

    again = store.insert([NewJob(task="t", unique_key=text) for text in HELD])

    assert [(receipt.id, receipt.is_new) for receipt in again] == [(job_id, False) for job_id in ids]


def test_operators_reach_the_job_they_name_and_no_other(store: Store, reader: Reader) -> None:
    bystander = canary(store)
    ids = put(store, id=HELD)
    for text in HELD:
        [result] = store.cancel([JobId(text)], text, actor=text)
        assert result.applied
        assert store.update_job(JobId(f"no {text}"), JobUpdate(priority=1), actor=text).state is None
    actors = {event.actor for _, event in reader.audit(limit=1_000)}

    assert [job.cancel_reason or job.reason for job in load_jobs(reader, ids)] == list(HELD)
    assert {job.state for job in load_jobs(reader, ids)} == {JobState.CANCELLED}
    assert all(result.applied for result in store.revive(ids, actor="'"))
    assert all(result.applied for result in store.delete(ids[1:], actor='"'))
    assert [job.id for job in everything(reader)] == [ids[0], bystander]
    assert actors == set(HELD)


def test_the_text_of_a_search_is_a_text_and_no_pattern(store: Store, reader: Reader) -> None:
    canary(store)
    payloads = [encode_call((text,), {}) for text in HELD]
    ids = put(store, payload=tuple(payloads))

    for text in HELD:
        expected = [job_id for job_id, data in zip(ids, payloads, strict=True) if text.encode() in data]
        assert sorted(found(reader, text=text)) == sorted(expected), text
    assert [decode_call(job.payload)[0] for job in load_jobs(reader, ids)] == [(text,) for text in HELD]


def test_a_question_about_what_cannot_be_stored_is_refused_or_finds_nothing(
    store: Store, reader: Reader
) -> None:
    bystander = canary(store)

    for text in (*REFUSED, "'); DROP"):
        conditions: list[dict[str, Any]] = [
            {name: text} for name in ("unique_key", "idempotency_key", "correlation_id", "parent_id")
        ]
        conditions += [{name: (text,)} for name in ("tags", "tasks", "queues")]
        for one in [*conditions, {"metadata": {text: text}}]:
            assert nothing(found, reader, **one), one
        assert nothing(found, reader, text=text) or text == ""
        assert nothing(reader.jobs, [JobId(text)])
        assert nothing(reader.history, JobId(text))
        assert nothing(store.cancel, [JobId(text)])
        assert nothing(store.revive, [JobId(text)])
        assert nothing(store.delete, [JobId(text)])
    assert [(job.id, job.state) for job in everything(reader)] == [(bystander, JobState.PENDING)]


# ------------------------------------------------------------------ lives


def test_workers_errors_reasons_and_notes_may_say_anything(store: Store, reader: Reader) -> None:
    bystander = canary(store)
    ids = put(store, id=HELD)
    for text in HELD:
        worker = WorkerId(text)
        [job] = store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1).jobs
        lease = Lease(job.id, job.attempt)
        line = LogLine(at=1, level="INFO", text=text, number=1)
        update = ProgressUpdate(
            lease=lease,
            progress=Progress(done=1, message=text),
            lines=(line,),
            steps=(StepResult(name=text, result=b"1"),),
        )
        assert not store.settle_and_claim(worker, updates=[update]).refused_updates
        assert store.renew(worker, [lease]).renewed == (lease,)
        decided = decide(job, Discarded(AttemptError(type=text, message=text, traceback=text)), 0.0)
        assert store.settle_and_claim(worker, [decided]).settled == (job.id,)

    for text, job in zip(HELD, load_jobs(reader, ids), strict=True):
        assert (job.state, job.worker) == (JobState.DEAD, text)
        assert [(past.type, past.message, past.traceback) for past in job.errors] == [(text,) * 3]
        job_progress = reader.progress(job.id)
        assert job_progress.progress is not None
        assert job_progress.progress.message == text
        assert [line.text for line in job_progress.lines] == [text]
        assert [step.name for step in job_progress.steps] == [text]
    [job] = load_jobs(reader, [bystander])
    assert job.state is JobState.PENDING


def test_what_no_store_can_hold_costs_an_attempt_no_more_than_a_sign(store: Store, reader: Reader) -> None:
    texts = [text for text in REFUSED if text and len(text) < 100]
    ids = put(store, correlation_id=tuple(map(str, range(len(texts)))))
    for text in texts:
        [job] = store.settle_and_claim(WorkerId("w"), claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1).jobs
        line = LogLine(at=1, level=text, text=text, number=1)
        update = ProgressUpdate(
            lease=Lease(job.id, job.attempt), progress=Progress(done=1, message=text), lines=(line,)
        )
        store.settle_and_claim(WorkerId("w"), updates=[update])
        clean = text.replace("\x00", "\u2400").encode("utf-8", "replace").decode()
        decided = decide(job, Discarded(AttemptError(type="Boom", message=clean)), 0.0)
        assert store.settle_and_claim(WorkerId("w"), [decided]).settled == (job.id,)

    for job in load_jobs(reader, ids):
        [line] = reader.progress(job.id).lines
        assert "\x00" not in line.text
        assert line.text


def test_limits_and_shares_count_each_text_by_itself(store: Store, reader: Reader) -> None:
    store.save_limit(Limit(scope="key:host", concurrency=1))
    for text in HELD:
        store.save_limit(Limit(scope=task_scope(text), concurrency=1), actor=text)
    put(
        store,
        task=HELD * 2,
        limit_keys=tuple({"host": text, FAIRNESS: text} for text in HELD * 2),
    )

    first = claim_all(store, WorkerId("w"))

    assert sorted(job.task for job in first) == sorted(HELD)
    assert {limit.scope for limit in reader.limits()} == {"key:host", *map(task_scope, HELD)}
    for text in HELD[1:]:
        assert store.drop_limit(task_scope(text))
    assert [limit.scope for limit in reader.limits()] == ["key:host", task_scope(HELD[0])]


def test_sequences_and_clients_are_told_apart(store: Store, reader: Reader) -> None:
    store.save_queue(DEFAULT_QUEUE, {"client_rate": 1, "client_burst": 2})
    ids = put(store, sequence=HELD * 2, client=HELD * 2)

    first = claim_all(store, WorkerId("w"))

    assert sorted(job.id for job in first) == sorted(ids[:MANY])
    assert [job.sequence for job in load_jobs(reader, ids)] == list(HELD * 2)


def test_a_queue_of_such_a_name_is_refused_or_not_there(store: Store, reader: Reader) -> None:
    bystander = canary(store)
    plain = ("0", "-1", "1e5", "true", "null", "_", "A", "a")  # as good as any

    for name in [QueueName(text) for text in NASTY if text not in plain]:
        with pytest.raises(ForebayError):
            store.save_queue(name, actor="'")
        with pytest.raises(ForebayError):
            store.drop_queue(name, force=True)
        assert nothing(reader.queues, [name])
        assert nothing(reader.peek, name)
        assert nothing(jobs_in, reader, name)
    assert [queue.name for queue in reader.queues()] == [CANARY]
    assert reader.jobs([bystander])[0] is not None


# ------------------------------------------------------------------ schedules, workers, events


def test_schedules_of_any_name_are_fired_and_dropped_alone(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    for text in HELD:
        definition = ScheduleDefinition(name=text, job=NewJob(task="t"), every_ms=60_000, unique_key=text)
        fresh = plan_runs(Schedule(definition=definition), clock.now_ms(), 0.0)
        assert store.save_schedule(fresh, actor=text)
    clock.advance(ms=60_000)

    due = store.due_schedules(1_000)
    fired = store.fire_schedules([plan_advance(schedule, due.now, 0.0) for schedule in due.schedules])

    assert sorted(one.name for one in fired) == sorted(HELD)
    assert all(one.applied and one.jobs == 1 for one in fired)
    assert sorted(schedule.name for schedule in reader.schedules()) == sorted(HELD)
    for text in HELD:
        [schedule] = reader.schedules([text])
        assert (schedule.name, len(reader.schedule_runs(text))) == (text, 1)
        assert store.drop_schedule(text)
        assert reader.schedules([text]) == []
    for text in REFUSED:
        with pytest.raises((InvalidJob, ConfigError)):
            ScheduleDefinition(name=text, job=NewJob(task="t"), every_ms=60_000)
        assert nothing(reader.schedule_runs, text)


def test_workers_commands_maintenance_tasks_and_events_may_be_called_anything(
    store: Store, reader: Reader
) -> None:
    for text in HELD:
        store.heartbeat(WorkerInfo(id=WorkerId(text), host=text, queues=(QueueName("default"),)))
        [command] = store.send_command(CommandKind.PAUSE, [WorkerId(text)], actor=text)
        assert [taken.id for taken in store.take_commands([WorkerId(text)])] == [command.id]
        store.answer_command(command.id, text)
        [answered] = reader.commands([command.id])
        assert answered is not None
        assert answered.response == text
        assert store.acquire_maintenance(text, 60_000)
        assert not store.acquire_maintenance(text, 60_000)
    store.record_events([Event(kind=EventKind.COMMENT, actor=text, detail=text) for text in HELD])

    assert sorted((worker.id, worker.host) for worker in reader.workers()) == sorted(
        (text, text) for text in HELD
    )
    job_progress = [event.detail for _, event in reader.audit(limit=1_000) if event.kind is EventKind.COMMENT]
    assert sorted(job_progress) == sorted(HELD)
    for text in HELD[1:]:
        store.remove_worker(WorkerId(text))
    assert [worker.id for worker in reader.workers()] == [HELD[0]]


# ------------------------------------------------------------------ places


@pytest.mark.parametrize(
    "address", ["postgresql://localhost/db?schema={}", "redis://localhost/0?namespace={}"]
)
def test_a_schema_or_a_namespace_of_such_a_name_is_refused(address: str) -> None:
    names = ["'", '"', "a b", "a;b", "a}b{", "{a}", "*", "a\nb", "\x00", "\U0001f600", "x" * 100, "a'--", "%"]
    for name in names:
        with pytest.raises(ConfigError) as caught:
            open_engine(address.format(quote(name)))
        assert len(str(caught.value)) < 1_000
