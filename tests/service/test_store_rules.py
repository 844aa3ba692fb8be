"""The store from elsewhere: what a key does not allow is neither done nor told, by whichever call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from forebay.domain.api_key import Grant
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.gradual_revive import GradualRevive
from forebay.domain.histogram import Histogram
from forebay.domain.job import MAX_COST, Dependency, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.metrics import (
    ALL_WORKERS,
    SAMPLE,
    TEN_SECONDS,
    MetricRow,
    QueueSnapshot,
    TaskStats,
    start_of,
)
from forebay.domain.outcome import Completed, Interrupted
from forebay.domain.progress import JobProgress, Progress, ProgressUpdate
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.settlement import TokenCharge, decide
from forebay.domain.stored_document import Document
from forebay.domain.worker import MIN_HEARTBEAT_MS, SHOWN_JOBS, HeartbeatStatus, WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.errors import (
    CorruptPayload,
    Forbidden,
    InvalidJob,
    JobNotFound,
    QueueFull,
    QueueNotFound,
    RateLimited,
    StoreRefused,
    StoreUnusable,
    Unauthenticated,
)
from forebay.operations.gradual_revive import find_gradual_revive
from forebay.payload.codec import decode_call, encode_call, frame
from forebay.payload.masking import MASK
from forebay.service.api_keys import KIND, ApiKeyAdmin
from forebay.service.browser_sessions import KIND as SESSION
from forebay.service.permissions.remote_store_call_rules import STORE_CALL_RULES
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.claims_and_results import LeaseStatus, QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.rpc import store_methods
from tests.service.live_server import Served, serving

MINE, OTHER = QueueName("mine"), QueueName("other")
GRANTS = {
    "admin": ["admin"],
    "boss": ["admin"],
    "everywhere": ["consume", "produce"],
    "producer": [f"produce:{MINE}"],
    "consumer": [f"consume:{MINE}"],
    "viewer": [f"view:{MINE}"],
    "operator": [f"operate:{MINE}"],
    "owner": [f"admin:{MINE}"],
    "maker": ["produce:new-*"],
}
W1, W2 = WorkerId("w1"), WorkerId("w2")


class Far(NamedTuple):
    """Both sides of a store, as the holder of a key has them."""

    store: Store
    reader: Reader


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as found:
        yield found


@pytest.fixture(scope="module")
def near(served: Served) -> Iterator[Far]:
    """The store behind the service."""
    engine = served.service.pool.engine
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        for name in (MINE, OTHER):
            store.save_queue(name)
        yield Far(store, reader)


@pytest.fixture(scope="module")
def far(served: Served, near: Far) -> Iterator[dict[str, Far]]:
    """The store as each holder of a key sees it."""
    keys = ApiKeyAdmin(near.store, near.reader, actor="ann")
    with ExitStack() as stack:
        found = {}
        for name, grants in GRANTS.items():
            token = keys.create(name, [Grant.parse(one) for one in grants]).token
            engine = open_engine(served.address, key=token)
            store = stack.enter_context(closing(engine.store()))
            found[name] = Far(store, stack.enter_context(closing(engine.reader())))
        yield found


def put(near: Far, queue: QueueName, **fields: Any) -> JobId:
    [receipt] = near.store.insert([NewJob(task="t", queue=queue, **fields)])
    assert receipt.id is not None
    return receipt.id


def started(near: Far, queue: QueueName, worker: WorkerId, **fields: Any) -> Job:
    job_id = put(near, queue, **fields)
    while True:
        [job] = near.store.settle_and_claim(worker, claims=[QueueClaim(queue, 1)], room=1).jobs
        if job.id == job_id:
            return job


def state_of(near: Far, job_id: JobId) -> JobState:
    [job] = near.reader.jobs([job_id])
    assert job is not None
    return job.state


def test_every_call_of_the_store_contract_has_its_need() -> None:
    assert STORE_CALL_RULES.keys() | {"poll_wakeups"} == store_methods().keys()


# What spans all queues, or is about none, needs a key for all of them

SPANNING: dict[str, Callable[[Far], object]] = {
    "sweep": lambda far: far.store.sweep(W1),
    "promote": lambda far: far.store.promote(),
    "rescore": lambda far: far.store.rescore(),
    "prune": lambda far: far.store.prune(),
    "acquire_maintenance": lambda far: far.store.acquire_maintenance("d", 0),
    "snapshot_queues": lambda far: far.store.snapshot_queues(),
    "prune_metrics": lambda far: far.store.prune_metrics(10_000, 0),
    "due_schedules": lambda far: far.store.due_schedules(),
    "fire_schedules": lambda far: far.store.fire_schedules([]),
    "save_limit": lambda far: far.store.save_limit(Limit(scope="global", concurrency=1_000)),
    "drop_limit": lambda far: far.store.drop_limit("global"),
    "save_schedule": lambda far: far.store.save_schedule(
        Schedule(definition=ScheduleDefinition(name="s", job=NewJob(task="t"), cron="0 3 1 1 *"))
    ),
    "drop_schedule": lambda far: far.store.drop_schedule("s"),
    "send_command": lambda far: far.store.send_command(CommandKind.PAUSE, []),
    "record_events": lambda far: far.store.record_events([Event(kind=EventKind.COMMENT)]),
    "migrate": lambda far: far.store.migrate(),
    "save_document": lambda far: far.store.save_document(Document(kind="d", name="d", body="{}")),
    "drop_document": lambda far: far.store.drop_document("d", "d"),
    "keys": lambda far: far.reader.documents(KIND),
    "sessions": lambda far: far.reader.documents(SESSION),
    "search": lambda far: far.reader.search(JobQuery()),
    "first_in_sequence": lambda far: far.reader.first_in_sequence("s"),
    "workers": lambda far: far.reader.workers(),
    "commands": lambda far: far.reader.commands([]),
    "schedules": lambda far: far.reader.schedules(),
    "schedule_runs": lambda far: far.reader.schedule_runs("s"),
    "limits": lambda far: far.reader.limits(),
    "audit": lambda far: far.reader.audit(),
    "archive": lambda far: far.reader.archive(),
    "health": lambda far: far.reader.health(),
    "server_usage": lambda far: far.reader.server_usage(),
    "cancel dependants": lambda far: far.store.cancel([], dependants=True),
    "revive dependants": lambda far: far.store.revive([], dependants=True),
}


@pytest.mark.parametrize("name", SPANNING)
def test_what_spans_all_queues_needs_a_key_for_all(name: str, far: dict[str, Far]) -> None:
    for holder in ("producer", "consumer", "viewer", "operator", "owner"):
        with pytest.raises(Forbidden):
            SPANNING[name](far[holder])

    SPANNING[name](far["admin"])


@pytest.mark.parametrize(
    "name",
    [
        "fire_schedules",
        "record_events",
        "migrate",
        "keys",
        "sessions",
        "save_document",
        "audit",
        "save_limit",
    ],
)
def test_a_worker_for_all_queues_is_no_administrator(name: str, far: dict[str, Far]) -> None:
    with pytest.raises(Forbidden):
        SPANNING[name](far["everywhere"])


# Produce


def test_a_producer_enqueues_into_its_queue_under_its_own_name(near: Far, far: dict[str, Far]) -> None:
    near.store.save_queue(MINE, {"client_rate": 1, "client_burst": 2})
    jobs = [NewJob(task="t", queue=MINE, client=name) for name in ("one", "two", "three")]
    before = near.reader.counts([MINE])[MINE].pending

    with pytest.raises(RateLimited):  # one client has no room for three at once, three clients had
        far["producer"].store.insert(jobs)
    near.store.save_queue(MINE, {"client_rate": None, "client_burst": None})
    receipts = far["producer"].store.insert(jobs)

    assert all(receipt.is_new for receipt in receipts)
    assert near.reader.counts([MINE])[MINE].pending == before + 3


def test_a_producer_enqueues_into_no_other_queue(near: Far, far: dict[str, Far]) -> None:
    before = near.reader.counts([OTHER])[OTHER]

    for holder in ("producer", "consumer", "viewer", "operator"):
        with pytest.raises(Forbidden):
            far[holder].store.insert([NewJob(task="t", queue=MINE), NewJob(task="t", queue=OTHER)])

    assert near.reader.counts([OTHER])[OTHER] == before


def test_a_producer_creates_no_queue(far: dict[str, Far]) -> None:
    with pytest.raises(QueueNotFound):
        far["maker"].store.insert([NewJob(task="t", queue=QueueName("new-1"))])


def test_a_new_job_reaches_into_no_other_queue(near: Far, far: dict[str, Far]) -> None:
    hidden = put(near, OTHER)
    refusals = []
    for parent in (hidden, JobId("unknown")):
        with pytest.raises(InvalidJob) as caught:
            far["producer"].store.insert([NewJob(task="t", queue=MINE, depends_on=(Dependency(parent),))])
        refusals.append(str(caught.value).replace(parent, "ID"))

    with pytest.raises(Forbidden):
        far["producer"].store.insert([NewJob(task="t", queue=MINE, sequence="s")])

    assert len(set(refusals)) == 1


# Consume


def test_a_worker_claims_from_its_queue_alone(near: Far, far: dict[str, Far]) -> None:
    mine = put(near, MINE, priority=99)
    put(near, OTHER)
    store = far["consumer"].store

    [job] = store.settle_and_claim(W1, claims=[QueueClaim(MINE, 1)], room=1).jobs
    answer = store.settle_and_claim(W1, [decide(job, Completed(b"1"), 0.0)])

    assert (job.id, answer.settled) == (mine, (mine,))
    with pytest.raises(Forbidden):
        store.settle_and_claim(W1, claims=[QueueClaim(MINE, 1), QueueClaim(OTHER, 1)], room=2)


def test_a_worker_ends_and_keeps_no_jobs_of_other_queues(near: Far, far: dict[str, Far]) -> None:
    job = started(near, OTHER, W2)
    lease = Lease(job.id, job.attempt)
    store = far["consumer"].store

    answer = store.settle_and_claim(
        W2,
        [decide(job, Completed(b"1"), 0.0)],
        updates=[ProgressUpdate(lease=lease, progress=Progress(done=1))],
    )
    renewal = store.renew(W2, [lease])
    [status_of_lease] = store.lease_status(W2, [lease])

    assert [(refusal.lease, refusal.reason) for refusal in answer.refused] == [(lease, "gone")]
    assert [refusal.lease for refusal in answer.refused_updates] == [lease]
    assert (renewal.renewed, [refusal.lease for refusal in renewal.refused]) == ((), [lease])
    assert status_of_lease is LeaseStatus.OVER
    assert state_of(near, job.id) is JobState.RUNNING
    assert near.reader.progress(job.id) == JobProgress()


def test_a_worker_under_a_foreign_id_is_told_nothing(near: Far, far: dict[str, Far]) -> None:
    worker = WorkerId("foreign")
    theirs, mine = started(near, OTHER, worker), started(near, MINE, worker)
    near.store.cancel([theirs.id, mine.id], "secret")
    store = far["consumer"].store

    answer = store.settle_and_claim(worker, known=[])
    renewal = store.renew(worker, [])

    assert {job.queue for job in answer.recovered} == {MINE}
    assert [one.job_id for one in (*answer.cancels, *renewal.cancels)] == [mine.id] * 2


def test_follow_ups_need_leave_to_produce(near: Far, far: dict[str, Far]) -> None:
    job = started(near, MINE, W1)
    decided = decide(job, Completed(b"1", follow_ups=(NewJob(task="t", queue=OTHER),)), 0.0)

    with pytest.raises(Forbidden):
        far["consumer"].store.settle_and_claim(W1, [decided])
    answer = far["everywhere"].store.settle_and_claim(W1, [decided])

    assert answer.settled == (job.id,)


def test_follow_ups_create_no_queue(near: Far, far: dict[str, Far]) -> None:
    job = started(near, MINE, W1)
    decided = decide(job, Completed(b"1", follow_ups=(NewJob(task="t", queue=QueueName("unknown")),)), 0.0)

    with pytest.raises(QueueNotFound):
        far["everywhere"].store.settle_and_claim(W1, [decided])

    assert near.reader.queues([QueueName("unknown")]) == []
    assert state_of(near, job.id) is JobState.RUNNING


def test_a_settlement_gives_back_no_more_tokens_than_its_job_took(near: Far, far: dict[str, Far]) -> None:
    rare, scope = QueueName("rare"), "queue:rare"
    near.store.save_limit(Limit(scope=scope, rate=1, per_ms=86_400_000, burst=1))
    started(near, rare, W2)  # takes the one token of the day
    put(near, rare)
    job = started(near, MINE, W1)

    far["consumer"].store.settle_and_claim(
        W1, [replace(decide(job, Interrupted(), 0.0), charge=TokenCharge((scope,), -100))]
    )

    assert near.store.settle_and_claim(W2, claims=[QueueClaim(rare, 1)], room=1).jobs == ()


@pytest.mark.parametrize("holder", ["consumer", "everywhere"])
def test_a_settlement_charges_no_more_than_a_job_can_cost_and_for_itself_alone(
    holder: str, near: Far, far: dict[str, Far]
) -> None:
    rare = QueueName(f"rare-{holder}")
    put(near, rare)
    for scope in (f"queue:{MINE}", f"queue:{rare}"):
        near.store.save_limit(Limit(scope=scope, rate=MAX_COST, per_ms=1_000, burst=MAX_COST))
    job = started(near, MINE, W1)
    decided = decide(job, Completed(b"1"), 0.0)

    answer = far[holder].store.settle_and_claim(
        W1, [replace(decided, charge=TokenCharge((f"queue:{rare}",), 2**40))]
    )

    assert answer.settled == (job.id,)
    assert len(near.store.settle_and_claim(W2, claims=[QueueClaim(rare, 1)], room=1).jobs) == 1
    for scope in (f"queue:{MINE}", f"queue:{rare}"):
        near.store.drop_limit(scope)


def test_what_a_worker_says_of_itself_can_be_reckoned_with(near: Far, far: dict[str, Far]) -> None:
    worker = WorkerInfo(
        id=WorkerId("odd"),
        queues=(MINE,),
        host="h" * 10_000,
        heartbeat_ms=0,
        running=(JobId("j"),) * 100,
    )

    far["consumer"].store.heartbeat(worker)

    [listed] = [one for one in near.reader.workers() if one.id == worker.id]
    assert (len(listed.host), listed.heartbeat_ms, len(listed.running)) == (255, MIN_HEARTBEAT_MS, SHOWN_JOBS)
    assert listed.heartbeat_status(near.reader.now()) is HeartbeatStatus.ALIVE
    near.store.remove_worker(worker.id)


def test_a_worker_speaks_for_no_other_one(near: Far, far: dict[str, Far]) -> None:
    other = WorkerInfo(id=WorkerId("theirs"), queues=(OTHER,))
    near.store.heartbeat(other)
    [command] = near.store.send_command(CommandKind.PAUSE, [other.id])
    store = far["consumer"].store

    attempts: list[Callable[[], object]] = [
        lambda: store.heartbeat(WorkerInfo(id=other.id, queues=(MINE,))),
        lambda: store.heartbeat(WorkerInfo(id=WorkerId("new"), queues=(OTHER,))),
        lambda: store.heartbeat(WorkerInfo(id=WorkerId("new"))),
        lambda: store.remove_worker(other.id),
        lambda: store.take_commands([other.id]),
        lambda: store.answer_command(command.id, "done"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            attempt()

    store.heartbeat(WorkerInfo(id=WorkerId("ours"), queues=(MINE,)))
    assert store.take_commands([WorkerId("ours")]) == []
    [listed] = [worker for worker in near.reader.workers() if worker.id == "ours"]
    assert listed.is_remote
    store.remove_worker(WorkerId("ours"))
    near.store.remove_worker(other.id)


def test_a_worker_keeps_and_sees_metrics_of_its_own_queues(near: Far, far: dict[str, Far]) -> None:
    start = start_of(near.reader.now(), TEN_SECONDS)
    mine, other = (
        MetricRow(resolution_ms=TEN_SECONDS, starts_at=start, queue=queue, worker="w")
        for queue in (MINE, OTHER)
    )
    near.store.record_metrics([other])
    store = far["consumer"].store

    store.record_metrics([mine])
    with pytest.raises(Forbidden):
        store.record_metrics([mine, other])
    with pytest.raises(Forbidden):
        store.record_metrics([mine], instead_of=[mine])

    def seen(holder: str) -> set[str]:
        rows = far[holder].reader.metrics(TEN_SECONDS, start, start + 1).rows
        return {row.queue for row in rows if row.worker == "w"}

    assert (seen("viewer"), seen("admin")) == ({MINE}, {MINE, OTHER})


SOME = Histogram({1: 1}, 1, 1, 1)
NO_METRICS: dict[str, dict[str, Any]] = {
    "resolution": {"resolution_ms": 60_000},
    "between": {"starts_at": 1},
    "sample": {"worker": SAMPLE},
    "together": {"worker": ALL_WORKERS},
    "snapshot": {"snapshot": QueueSnapshot(0, Counts(), 0, 0)},
    "tasks": {"tasks": {str(number): TaskStats() for number in range(1_002)}},
    "counts": {"tasks": {"t": TaskStats({"completed": 2**60})}},
    "less than none": {"tasks": {"t": TaskStats({"completed": -1})}},
    "errors": {"tasks": {"t": TaskStats({}, {str(number): 1 for number in range(22)})}},
    "steps": {"tasks": {"t": TaskStats(run=replace(SOME, steps={2**40: 1}))}},
    "total": {"tasks": {"t": TaskStats(wait=replace(SOME, total_us=2**60))}},
    "most": {"tasks": {"t": TaskStats(wait=replace(SOME, max_us=-1))}},
}


@pytest.mark.parametrize("name", NO_METRICS)
def test_metrics_that_no_worker_can_have_seen_are_refused(name: str, near: Far, far: dict[str, Far]) -> None:
    fields = dict(NO_METRICS[name])
    start = start_of(near.reader.now(), TEN_SECONDS) + fields.pop("starts_at", 0)
    row = MetricRow(
        **{"resolution_ms": TEN_SECONDS, "starts_at": start, "queue": MINE, "worker": "w", **fields}
    )

    with pytest.raises(InvalidJob):
        far["consumer"].store.record_metrics([row])


# Control


@pytest.mark.parametrize("holder", ["producer", "consumer", "viewer"])
def test_a_key_without_the_operator_role_controls_nothing(
    holder: str, near: Far, far: dict[str, Far]
) -> None:
    job_id, store = put(near, MINE), far[holder].store
    attempts: list[Callable[[], object]] = [
        lambda: store.delete([job_id]),
        lambda: store.revive([job_id]),
        lambda: store.save_queue(MINE, state=QueueState.PAUSED),
        lambda: store.save_queue(MINE, {"weight": 2}),
        lambda: store.drop_queue(MINE, force=True),
    ]

    for attempt in attempts:
        with pytest.raises(Forbidden):
            attempt()

    assert state_of(near, job_id) is JobState.PENDING


def test_an_operator_controls_its_own_queue_and_signs(near: Far, far: dict[str, Far]) -> None:
    job_id, store = put(near, MINE), far["operator"].store

    [result] = store.cancel([job_id], actor="another-actor")
    store.save_queue(MINE, state=QueueState.PAUSED, actor="another-actor")
    store.save_queue(MINE, state=QueueState.ACTIVE)
    [revived] = store.revive([job_id])

    assert (result.applied, revived.applied) == (True, True)
    actors = {str(event.actor).partition("#")[0] for _, event in near.reader.audit(limit=4)}
    assert actors == {"operator"}
    refused: list[Callable[[], object]] = [
        lambda: store.save_queue(MINE, {"weight": 2}),
        lambda: store.save_queue(OTHER, state=QueueState.PAUSED),
        lambda: store.revive([job_id], queue=OTHER),
        lambda: store.drop_queue(MINE),
    ]
    for attempt in refused:
        with pytest.raises(Forbidden):
            attempt()


def test_what_is_recorded_is_signed_each_time(near: Far, far: dict[str, Far]) -> None:
    far["admin"].store.record_events([Event(kind=EventKind.COMMENT, actor="another-actor")] * 2)

    actors = {str(event.actor).partition("#")[0] for _, event in near.reader.audit(limit=2)}
    assert actors == {"admin"}


@pytest.mark.parametrize("kind", [KIND, SESSION])
def test_keys_and_sessions_are_changed_by_no_client_unseen(kind: str, far: dict[str, Far]) -> None:
    store = far["admin"].store

    with pytest.raises(InvalidJob, match="audit log"):
        store.save_document(Document(kind=kind, name="back-door", body="{}"))
    with pytest.raises(InvalidJob, match="audit log"):
        store.drop_document(kind, "viewer")


def test_a_gradual_revive_belongs_to_the_holder_of_the_key_whatever_it_writes(
    near: Far, far: dict[str, Far]
) -> None:
    def saved(holder: str, by: str, revision: int) -> str:
        body = msgspec.json.encode(GradualRevive(name="r", query=JobQuery(), started_by=by)).decode()
        far[holder].store.save_document(
            Document(kind="gradual_revive", name="r", body=body, revision=revision)
        )
        return find_gradual_revive(near.reader, "r").started_by.partition("#")[0]

    assert [saved("admin", "bob", 0), saved("boss", "bob", 1)] == ["admin", "admin"]
    with pytest.raises(Forbidden):
        saved("everywhere", "bob", 2)
    with pytest.raises(InvalidJob, match="no gradual revive"):
        far["admin"].store.save_document(Document(kind="gradual_revive", name="s", body='{"name": 1}'))
    near.store.drop_document("gradual_revive", "r")


def test_a_job_is_moved_into_no_queue_beyond_the_key(near: Far, far: dict[str, Far]) -> None:
    job_id = put(near, MINE)

    with pytest.raises(Forbidden):
        far["producer"].store.update_job(job_id, JobUpdate(queue=OTHER))
    with pytest.raises(Forbidden):
        far["producer"].store.update_job(job_id, JobUpdate(queue=QueueName("none")))
    with pytest.raises(QueueNotFound):
        far["maker"].store.update_job(put(near, QueueName("new-8")), JobUpdate(queue=QueueName("new-9")))

    assert near.reader.jobs([job_id])[0].queue == MINE  # type: ignore[union-attr]  # it is there
    assert far["admin"].store.update_job(job_id, JobUpdate(queue=OTHER)).applied


def test_jobs_of_other_queues_are_as_good_as_none(near: Far, far: dict[str, Far]) -> None:
    job_id = put(near, OTHER)
    edge = put(near, MINE, depends_on=(Dependency(job_id),))
    for holder in ("producer", "operator", "viewer"):
        store, reader = far[holder]
        refusal = Forbidden if holder == "viewer" else JobNotFound
        with pytest.raises((JobNotFound, refusal)):
            store.cancel([job_id])
        with pytest.raises((JobNotFound, refusal)):
            store.update_job(job_id, JobUpdate(priority=1))
        assert reader.jobs([job_id]) == [None]
        assert (reader.history(job_id), reader.position(job_id), reader.progress(job_id)) == (
            None,
            None,
            JobProgress(),
        )
        assert (reader.parents([edge]), reader.dependants([job_id])) == ([], [])

    assert [one.parent for one in far["admin"].reader.parents([edge])] == [job_id]
    assert far["admin"].reader.jobs([job_id])[0] is not None


def test_what_is_seen_of_a_job_names_none_of_another_queue(near: Far, far: dict[str, Far]) -> None:
    hidden, seen = put(near, OTHER), put(near, MINE)
    child = put(near, MINE, depends_on=(Dependency(hidden),), parent_id=hidden)
    other = put(near, MINE, parent_id=seen)
    near.store.cancel([hidden])
    near.store.promote()  # what hangs on it follows

    shown = {}
    for holder in ("admin", "viewer"):
        reader = far[holder].reader
        [first, second], timeline = reader.jobs([child, other]), reader.history(child)
        assert first is not None
        assert second is not None
        assert timeline is not None
        [line] = reader.search(JobQuery(queues=(MINE,), states=(JobState.CANCELLED,))).jobs
        [fate] = reader.job_states([child])
        assert fate is not None
        assert fate.reason == first.reason
        shown[holder] = (first.parent_id, first.reason, line.reason, timeline.job.parent_id, second.parent_id)

    assert shown["admin"][:2] == (hidden, shown["admin"][2])
    assert hidden in (shown["admin"][1] or "")
    assert (shown["viewer"][0], shown["viewer"][3], shown["viewer"][4]) == (None, None, seen)
    assert hidden not in str(shown["viewer"])
    assert "a job" in (shown["viewer"][1] or "")


LOOKS: list[Callable[[Reader], object]] = [
    lambda reader: reader.counts([OTHER]),
    lambda reader: reader.queues([OTHER]),
    lambda reader: reader.throughputs([OTHER]),
    lambda reader: reader.peek(OTHER),
    lambda reader: reader.search(JobQuery(queues=(MINE, OTHER))),
]


def test_secrets_are_told_to_who_might_claim_them(near: Far, far: dict[str, Far]) -> None:
    payload = encode_call([{"token": "s3cret"}], {"password": "s3cret", "to": "ann"})
    job_id = put(near, MINE, payload=payload)

    for holder, is_shown in (("consumer", True), ("producer", False), ("viewer", False)):
        reader = far[holder].reader
        [job], timeline = reader.jobs([job_id]), reader.history(job_id)
        assert job is not None
        assert timeline is not None
        shown = decode_call(job.payload)
        assert decode_call(timeline.job.payload) == shown
        assert shown == (
            decode_call(payload) if is_shown else (({"token": MASK},), {"password": MASK, "to": "ann"})
        )


def test_of_what_cannot_be_read_only_the_reason_is_told(near: Far, far: dict[str, Far]) -> None:
    unread = encode_call([], {"password": "s3cret"}).replace(b"fb1", b"fb2")
    encrypted = frame(b"s3aled", key="k1", nonce="n")

    def payload_for(holder: str, payload: bytes) -> bytes:
        [job] = far[holder].reader.jobs([put(near, MINE, payload=payload)])
        assert job is not None
        return job.payload

    assert payload_for("consumer", unread) == unread
    assert payload_for("viewer", encrypted) == encrypted
    shown = payload_for("viewer", unread)
    assert b"s3cret" not in shown
    with pytest.raises(CorruptPayload, match="format 2"):
        decode_call(shown)


def test_a_search_by_text_needs_leave_to_claim(near: Far, far: dict[str, Far]) -> None:
    put(near, MINE, payload=encode_call([], {"password": "s3arched"}))
    both, mine = JobQuery(text="s3arched"), JobQuery(queues=(MINE,), text="s3arched")

    assert far["admin"].reader.search(both).jobs == far["owner"].reader.search(mine).jobs != ()
    with pytest.raises(Forbidden, match="role consume for queue mine; search by task"):
        far["viewer"].reader.search(mine)


def test_looks_show_ones_own_queues(near: Far, far: dict[str, Far]) -> None:
    mine = put(near, MINE, priority=98)
    put(near, OTHER, priority=98)
    for holder in ("viewer", "operator"):
        reader = far[holder].reader
        assert set(reader.counts()) == {MINE}
        assert [queue.name for queue in reader.queues()] == [MINE]
        assert {one.queue for one in reader.lanes()} <= {MINE}
        page = reader.search(JobQuery(queues=(MINE,)), limit=1_000)
        assert mine in {job.id for job in page.jobs}
        assert {job.queue for job in page.jobs} == {MINE}
        for look in LOOKS:
            with pytest.raises(Forbidden):
                look(reader)
    assert set(far["consumer"].reader.counts([MINE])) == {MINE}
    assert set(far["admin"].reader.counts()) >= {MINE, OTHER}


# How much one call may ask for

MANY = [JobId(str(number)) for number in range(10_001)]
TOO_MUCH: list[Callable[[Far], object]] = [
    lambda far: far.store.cancel(MANY),
    lambda far: far.store.delete(MANY),
    lambda far: far.reader.parents(MANY),
    lambda far: far.reader.dependants([], limit=10_001),
    lambda far: far.reader.peek(MINE, 10_001),
    lambda far: far.reader.audit(limit=2**40),
    lambda far: far.store.promote(10_001),
    lambda far: far.store.sweep(W1, lease_ms=0),
    lambda far: far.store.renew(W1, [], lease_ms=86_400_001),
    lambda far: far.store.settle_and_claim(W1, claims=[QueueClaim(MINE, 1, 2**40)], room=1),
]


@pytest.mark.parametrize("number", range(len(TOO_MUCH)))
def test_no_call_asks_for_too_much(number: int, far: dict[str, Far]) -> None:
    with pytest.raises(InvalidJob):
        TOO_MUCH[number](far["admin"])


@pytest.mark.parametrize("ids", [MANY[:1_001], MANY[:1] * 2])
def test_one_look_is_at_a_thousand_jobs(ids: list[JobId], plain: Served) -> None:
    answer = plain.client.post("/v1/store/jobs", content=store_methods()["jobs"].encode_call((ids,), {}))

    assert answer.status_code == 422


def test_who_looks_at_more_jobs_makes_several_calls(near: Far, far: dict[str, Far]) -> None:
    job_id = put(near, MINE)

    found = far["admin"].reader.jobs([job_id, *MANY[:1_500], job_id])

    assert [job and job.id for job in found] == [job_id, *[None] * 1_500, job_id]


def test_who_has_room_for_more_than_a_call_gives_is_served(far: dict[str, Far]) -> None:
    answer = far["admin"].store.settle_and_claim(
        W1, claims=[QueueClaim(QueueName("empty"), 2**40)], room=2**40
    )

    assert answer.jobs == ()


# Unknown workers, and empty requests


@pytest.mark.parametrize("key", [None, "fbk_admin.wrong"])
def test_who_shows_no_key_is_let_in_nowhere(key: str | None, served: Served) -> None:
    with closing(open_engine(served.address, key=key).reader()) as reader, pytest.raises(Unauthenticated):
        reader.now()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("insert", b"\xc1", 422),
        ("insert", b"\x80", 422),
        ("insert", b'{"jobs": []}', 422),
        ("nothing", b"\x80", 422),
        ("close", b"\x80", 422),
        ("__init__", b"\x80", 422),
        ("settle_and_claim", b"\x82\xa6worker\x01\xa6claims\x90", 422),
    ],
)
def test_nonsense_is_refused_and_no_fault_of_ours(path: str, body: bytes, status: int, plain: Served) -> None:
    answer = plain.client.post(f"/v1/store/{path}", content=body)

    assert answer.status_code == status


def test_the_queue_of_deliveries_takes_nothing_else(plain: Served) -> None:
    # The client would refuse to say so.
    body = store_methods()["insert"].encode_call([[NewJob(task="t", queue=QueueName("forebay-alertz"))]], {})
    answer = plain.client.post("/v1/store/insert", content=body.replace(b"alertz", b"alerts"))

    assert answer.status_code == 422
    assert "is for deliveries of alerts" in answer.text


def test_a_call_is_a_post_and_not_too_large(plain: Served) -> None:
    answer = plain.client.get("/v1/store/now")
    with closing(open_engine(plain.address).store()) as store, pytest.raises(StoreRefused):
        store.insert([NewJob(task="t", payload=b"x" * 1_000_000)] * 17)

    assert (answer.status_code, answer.json()["code"]) == (405, "unsupported")


def test_what_is_no_service_is_told_apart(plain: Served) -> None:
    with closing(open_engine(f"{plain.address}/elsewhere").reader()) as reader, pytest.raises(StoreUnusable):
        reader.now()


def test_an_error_comes_with_all_that_it_says(plain: Served) -> None:
    queue = QueueName(plain.queue(max_length=1))
    with closing(open_engine(plain.address).store()) as store, pytest.raises(QueueFull) as caught:
        store.insert([NewJob(task="t", queue=queue)] * 2)

    assert (caught.value.queue, caught.value.limit, caught.value.retry_after) == (queue, 1, None)


def test_metrics_of_another_time_are_not_kept(near: Far, far: dict[str, Far]) -> None:
    start = start_of(near.reader.now(), TEN_SECONDS)
    rows = [
        MetricRow(resolution_ms=TEN_SECONDS, starts_at=start + shift, queue=MINE, worker="timely")
        for shift in (-400_000, 0, 400_000)
    ]

    far["consumer"].store.record_metrics(rows)

    kept = near.reader.metrics(TEN_SECONDS, start - 500_000, start + 500_000).rows
    assert [row.starts_at for row in kept if row.worker == "timely"] == [start]
