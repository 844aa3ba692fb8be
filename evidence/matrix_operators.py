"""Rows of the crash matrix: what is done by the clock, by operators, and with workers."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

from evidence.matrix_checks import HOUR, QUEUES, Stage
from evidence.matrix_places import Act
from evidence.matrix_rows import BOOM, DEFAULT, DYING, MAIL, MINUTE, Rows, held, job
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Job, JobId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_update import JobUpdate
from forebay.domain.metrics import TEN_SECONDS, MetricRow, TaskStats
from forebay.domain.outcome import Discarded
from forebay.domain.queue import QueueState
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.schedule_runs import plan_advance, plan_runs
from forebay.domain.settlement import decide
from forebay.domain.stored_document import Document
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.memory.engine import MemoryEngine

ROWS: Final = Rows()
INFO: Final = WorkerInfo(id=DYING, host="here", queues=QUEUES)


# Maintenance tasks


@ROWS.add("promote", "promote")
def promote(stage: Stage) -> Act:
    now = stage.clock.now_ms()
    stage.put(job(delay_ms=1_000), job(delay_ms=HOUR), job(expires_at=now + 1_000))
    stage.clock.advance(2_000)
    return lambda process: process.store.promote()


@ROWS.add("rescore", "rescore")
def rescore(stage: Stage) -> Act:
    stage.put(job(priority=1), job(priority=2), job())
    stage.store.save_queue(DEFAULT, {"mode": "fifo"})
    return lambda process: process.store.rescore()


@ROWS.add("prune", "prune")
def prune(stage: Stage) -> Act:
    stage.store.save_queue(DEFAULT, {"archive": True, "keep_finished_ms": MINUTE})
    stage.may_go(*stage.put(job(), job(unique_key="u")))
    stage.completed(*stage.run(2))
    stage.put(job())
    stage.clock.advance(2 * 24 * HOUR)
    return lambda process: process.store.prune()


@ROWS.add("read the clock and record the reading", "read_clock")
def read_clock(stage: Stage) -> Act:
    return lambda process: process.store.read_clock(record=True)


@ROWS.add("acquire maintenance", "acquire_maintenance")
def acquire_maintenance(stage: Stage) -> Act:
    return lambda process: process.store.acquire_maintenance("sweep", 1_000)


@ROWS.add("record events", "record_events")
def record_events(stage: Stage) -> Act:
    [one] = stage.put(job())
    event = Event(kind=EventKind.COMMENT, job_id=one, detail="seen", occurred_at=stage.clock.now_ms())
    return lambda process: process.store.record_events([event])


@ROWS.add("chain the audit log", "chain_audit")
def chain_audit(stage: Stage) -> Act:
    stage.store.record_events(
        [Event(kind=EventKind.API_KEY_CHANGED, actor="ann", occurred_at=stage.clock.now_ms())] * 3
    )
    return lambda process: process.store.chain_audit()


# Operators


@ROWS.add("cancel", "cancel")
def cancel(stage: Stage) -> Act:
    [running] = held(stage)
    ids = stage.put(job(unique_key="u"), job(delay_ms=HOUR))
    return lambda process: process.store.cancel([running.id, *ids], actor="ada")


@ROWS.add("cancel by force", "cancel")
def cancel_by_force(stage: Stage) -> Act:
    ids = [each.id for each in held(stage, 2)]
    return lambda process: process.store.cancel(ids, force=True)


@ROWS.add("cancel with dependants", "cancel", continues=True)
def cancel_with_dependants(stage: Stage) -> Act:
    [parent] = stage.put(job())
    [child] = stage.put(job(depends_on=dependencies_of([parent])))
    stage.put(job(depends_on=dependencies_of([child])))
    return lambda process: process.store.cancel([parent], dependants=True)


@ROWS.add("update a job", "update_job")
def update_job(stage: Stage) -> Act:
    [one] = stage.put(job(delay_ms=HOUR))
    change = JobUpdate(priority=7, delay_ms=0, metadata={"why": "now"})
    return lambda process: process.store.update_job(one, change, actor="ada")


@ROWS.add("update to another queue", "update_job")
def update_to_another_queue(stage: Stage) -> Act:
    [one] = stage.put(job(unique_key="u"))
    return lambda process: process.store.update_job(one, JobUpdate(queue=MAIL), actor="ada")


def _dead(stage: Stage, **changes: Any) -> list[Job]:
    jobs = held(stage, 2, **changes)
    stage.store.settle_and_claim(DYING, [decide(each, Discarded(BOOM), 0.0) for each in jobs])
    return jobs


@ROWS.add("revive", "revive")
def revive(stage: Stage) -> Act:
    ids = [each.id for each in _dead(stage)]
    stage.clock.advance(MINUTE)
    return lambda process: process.store.revive(ids, queue=MAIL, actor="ada")


@ROWS.add("revive with dependants", "revive", continues=True)
def revive_with_dependants(stage: Stage) -> Act:
    [parent] = stage.put(job())
    stage.put(job(depends_on=dependencies_of([parent])))
    stage.store.cancel([parent])
    stage.store.promote()
    stage.clock.advance(MINUTE)
    return lambda process: process.store.revive([parent], dependants=True)


@ROWS.add("delete", "delete", continues=True)
def delete(stage: Stage) -> Act:
    ids = stage.put(job(unique_key="u"), job())
    stage.put(job(depends_on=dependencies_of([ids[0]])))
    stage.may_go(*ids)
    return lambda process: process.store.delete(ids, actor="ada")


@ROWS.add("save a queue", "save_queue")
def save_queue(stage: Stage) -> Act:
    stage.put(job())
    return lambda process: process.store.save_queue(
        DEFAULT, {"weight": 3, "max_length": 100}, state=QueueState.PAUSED, actor="ada"
    )


@ROWS.add("drop a queue", "drop_queue")
def drop_queue(stage: Stage) -> Act:
    stage.put(job(queue=MAIL, unique_key="u"), job(queue=MAIL, delay_ms=HOUR), job())
    return lambda process: process.store.drop_queue(MAIL, force=True, actor="ada")


@ROWS.add("save a limit", "save_limit")
def save_limit(stage: Stage) -> Act:
    stage.put(job(), job())
    limit = Limit(scope=GLOBAL, concurrency=1)
    return lambda process: process.store.save_limit(limit, actor="ada")


@ROWS.add("drop a limit", "drop_limit")
def drop_limit(stage: Stage) -> Act:
    stage.store.save_limit(Limit(scope=key_scope("tenant"), concurrency=1))
    stage.put(job(limit_keys={"tenant": "a"}), job(limit_keys={"tenant": "a"}))
    stage.run(2)
    return lambda process: process.store.drop_limit(key_scope("tenant"), actor="ada")


@ROWS.add("import jobs", "import_jobs")
def import_jobs(stage: Stage) -> Act:
    stage.put(job(unique_key="taken"))
    old = MemoryEngine(clock=stage.clock)
    with closing(old.store()) as store, closing(old.reader()) as reader:
        brought = (
            job(queue=MAIL, unique_key="u"),
            job(unique_key="taken", idempotency_key="o", limit_keys={FAIRNESS: "a"}),
            job(delay_ms=HOUR, depends_on=dependencies_of([1])),
            job(sequence="s"),
            job(sequence="s"),
        )
        ids = [JobId(str(receipt.id)) for receipt in store.insert(brought)]
        [parent] = store.settle_and_claim(DYING, claims=[QueueClaim(MAIL, 1)], room=1).jobs
        store.settle_and_claim(DYING, [decide(parent, Discarded(BOOM), 0.0)])
        wholes = [whole for whole in reader.export_jobs(ids) if whole is not None]
    return lambda process: process.store.import_jobs(wholes)


# Documents


def _document(body: str, revision: int = 0) -> Document:
    return Document(kind="api_key", name="ada", body=body, revision=revision)


NOTED: Final = Event(kind=EventKind.COMMENT, actor="ada", detail="a key was changed")


@ROWS.add("save a document", "save_document")
def save_document(stage: Stage) -> Act:
    stage.store.save_document(_document("one"))
    document = _document("two", revision=1)
    return lambda process: process.store.save_document(document, event=NOTED)


@ROWS.add("drop a document", "drop_document")
def drop_document(stage: Stage) -> Act:
    stage.store.save_document(_document("one"))
    return lambda process: process.store.drop_document("api_key", "ada", event=NOTED)


# Metrics


def _metrics(worker: str = "ada") -> MetricRow:
    tasks = {"t": TaskStats({"completed": 1}, {"Boom": 2})}
    return MetricRow(resolution_ms=TEN_SECONDS, starts_at=0, queue=DEFAULT, worker=worker, tasks=tasks)


@ROWS.add("record metrics in the place of others", "record_metrics")
def record_metrics(stage: Stage) -> Act:
    stage.store.record_metrics([_metrics(), _metrics("bob")])
    parts = [_metrics(), _metrics("bob")]
    whole = [_metrics(""), _metrics("eve")]
    return lambda process: process.store.record_metrics(whole, instead_of=parts)


@ROWS.add("prune metrics", "prune_metrics")
def prune_metrics(stage: Stage) -> Act:
    stage.store.record_metrics([_metrics(), _metrics("bob")])
    return lambda process: process.store.prune_metrics(TEN_SECONDS, MINUTE)


# Schedules


def _schedule(stage: Stage) -> Schedule:
    definition = ScheduleDefinition(name="often", job=job(), every_ms=MINUTE, max_runs=3)
    return plan_runs(Schedule(definition=definition), stage.clock.now_ms(), 0.0)


@ROWS.add("save a schedule", "save_schedule")
def save_schedule(stage: Stage) -> Act:
    schedule = _schedule(stage)
    return lambda process: process.store.save_schedule(schedule, actor="ada")


@ROWS.add("drop a schedule", "drop_schedule")
def drop_schedule(stage: Stage) -> Act:
    stage.store.save_schedule(_schedule(stage))
    return lambda process: process.store.drop_schedule("often", actor="ada")


@ROWS.add("fire schedules", "fire_schedules")
def fire_schedules(stage: Stage) -> Act:
    stage.store.save_schedule(_schedule(stage))
    stage.clock.advance(MINUTE)
    due = stage.store.due_schedules()
    moves = [plan_advance(schedule, due.now, 0.0) for schedule in due.schedules]
    return lambda process: process.store.fire_schedules(moves)


# Workers and commands


@ROWS.add("first heartbeat", "heartbeat")
def first_heartbeat(stage: Stage) -> Act:
    held(stage)
    return lambda process: process.store.heartbeat(INFO)


@ROWS.add("another heartbeat", "heartbeat")
def another_heartbeat(stage: Stage) -> Act:
    stage.store.heartbeat(INFO)
    stage.clock.advance(10_000)
    return lambda process: process.store.heartbeat(INFO)


@ROWS.add("remove a worker", "remove_worker")
def remove_worker(stage: Stage) -> Act:
    stage.store.heartbeat(INFO)
    return lambda process: process.store.remove_worker(DYING)


@ROWS.add("send a command", "send_command")
def send_command(stage: Stage) -> Act:
    stage.store.heartbeat(INFO)
    return lambda process: process.store.send_command(CommandKind.PAUSE, [DYING], actor="ada")


def _command(stage: Stage) -> str:
    stage.store.heartbeat(INFO)
    [command] = stage.store.send_command(CommandKind.STACKS, [DYING])
    stage.commands.append(command.id)
    return command.id


@ROWS.add("take commands", "take_commands")
def take_commands(stage: Stage) -> Act:
    _command(stage)
    return lambda process: process.store.take_commands([DYING])


@ROWS.add("answer a command", "answer_command")
def answer_command(stage: Stage) -> Act:
    command = _command(stage)
    stage.store.take_commands([DYING])
    return lambda process: process.store.answer_command(command, "here they are")
