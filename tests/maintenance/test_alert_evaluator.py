"""The alert evaluator, and how notifications get to people."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from forebay.domain.alert import Alert, AlertRule, AlertTransition, Severity
from forebay.domain.alert_channel import Channel, MailChannel, TlsMode, WebhookChannel
from forebay.domain.job import ALERT_QUEUE, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MINUTE, TEN_SECONDS, MetricEvent, MetricRow, TaskStats, roll_up, start_of
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.maintenance.alert_delivery import deliver_due
from forebay.maintenance.alert_evaluator import AlertEvaluator
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.operations.alerts.evaluation import EvaluationResult, evaluate
from forebay.operations.alerts.metric_snapshot import FINE_MS
from forebay.operations.alerts.notification_jobs import make_delivery_job
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, CHANNELS, RULES
from forebay.operations.alerts.webhook_and_mail_delivery import DELIVERY, SIGNATURE, TIMESTAMP, deliver, sign
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.app.receivers import LOCAL, LOOPBACK, Calls, Mails, served
from tests.cycles import cycles_after
from tests.stores.contract.steps import together
from tests.stores.support import SWEEPER, new_job

WORD = "s3cret"
DEADLINE = 60.0
ALERT = Alert(
    id="01A",
    severity=Severity.CRITICAL,
    source="mail",
    message="Deep (mail): queue_depth is 11",
    triggered_at=1_800_000_000_000,
    rule="deep",
    condition="queue_depth > 10",
)


@pytest.fixture
def calls() -> Iterator[Calls]:
    with served(Calls()) as server:
        yield server


@pytest.fixture
def mails() -> Iterator[Mails]:
    with served(Mails()) as server:
        yield server


def awaited(probe: Callable[[], bool]) -> None:
    """Go on when it is so; a machine may be slow."""
    until = time.monotonic() + DEADLINE
    while not probe():
        assert time.monotonic() < until, "nothing has come of it"
        time.sleep(0.01)


def save_alert(store: Store, channel: Channel, step: AlertTransition = AlertTransition.FIRED) -> None:
    """There is an alert, and one channel that is to be told."""
    resolved_at = ALERT.triggered_at + MINUTE if step is AlertTransition.RESOLVED else None
    ALERTS.save(store, ALERT.id, msgspec.structs.replace(ALERT, resolved_at=resolved_at))
    CHANNELS.save(store, channel.name, channel)
    store.insert([make_delivery_job(ALERT, step, channel)])


def ends(reader: Reader) -> list[JobState]:
    return [job.state for job in reader.search(JobQuery(queues=(ALERT_QUEUE,))).jobs]


def hook(calls: Calls, path: str = "/hook?a=b") -> WebhookChannel:
    return WebhookChannel(name="ops", url=f"{calls.url}{path}", secret=WORD)


def test_an_evaluation_leaves_no_cycles(store: Store, reader: Reader, clock: ManualClock) -> None:
    rule = AlertRule(id="r", name="Slow", condition="completed_per_second < 1 and queue_depth > 5")
    RULES.save(store, rule.id, rule)

    assert cycles_after(lambda: evaluate(store, reader, clock)) == set()


@pytest.mark.shows("R-ALERT-09")
def test_of_those_who_look_at_once_one_raises_an_alert_and_one_delivery(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock
) -> None:
    rules = [AlertRule(id=f"r{number}", name="Deep", condition="queue_depth > 0") for number in range(3)]
    for rule in rules:
        RULES.save(store, rule.id, rule)
    CHANNELS.save(store, "ops", WebhookChannel(name="ops", url="http://127.0.0.1:9/"))
    store.insert([new_job()])

    def look(store: Store) -> EvaluationResult:
        with closing(engine.reader()) as own:
            return evaluate(store, own, clock)

    for _ in range(2):
        together(engine, [look] * 4)

    raised = [kept.value.rule for kept in ALERTS.all(reader).values()]
    assert sorted(str(rule) for rule in raised) == ["r0", "r1", "r2"]
    assert ends(reader) == [JobState.PENDING] * 3


@pytest.mark.shows("R-ALERT-08")
def test_a_call_is_signed_and_names_its_delivery(
    engine: Engine, store: Store, reader: Reader, calls: Calls
) -> None:
    save_alert(store, hook(calls))

    assert deliver_due(engine, policy=LOCAL) == 1

    [(path, headers, body)] = calls.seen
    assert path == "/hook?a=b"
    assert headers[SIGNATURE] == sign(WORD, headers[TIMESTAMP], body)
    assert headers[DELIVERY] == "01A.fired"
    sent = json.loads(body)
    assert sent["event"] == "alert.fired"
    assert sent["alert"]["triggered_at"] == "2027-01-15T08:00:00+00:00"
    assert (sent["alert"]["severity"], sent["alert"]["rule"]) == ("critical", "deep")
    assert ends(reader) == [JobState.COMPLETED]
    assert deliver_due(engine, policy=LOCAL) == 0


@pytest.mark.parametrize("status", [500, 404, 302])
def test_what_is_not_taken_is_tried_again_later(
    engine: Engine, store: Store, reader: Reader, calls: Calls, clock: ManualClock, status: int
) -> None:
    calls.answers = [status]
    save_alert(store, hook(calls, "/"))

    assert deliver_due(engine, policy=LOCAL) == 1
    assert ends(reader) == [JobState.RETRYING]
    assert deliver_due(engine, policy=LOCAL) == 0
    clock.advance(seconds=15)
    assert deliver_due(engine, policy=LOCAL) == 1

    assert ends(reader) == [JobState.COMPLETED]
    assert [path for path, _, _ in calls.seen] == ["/", "/"]
    assert len({headers[DELIVERY] for _, headers, _ in calls.seen}) == 1


@pytest.fixture
def memory(clock: ManualClock) -> Engine:
    return MemoryEngine(clock=clock)


def test_a_server_that_is_not_there_is_a_failed_attempt(
    memory: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    store, reader = memory.store(), memory.reader()
    with served(Calls()) as gone:
        url = gone.url
    save_alert(store, WebhookChannel(name="ops", url=url))

    deliver_due(memory, policy=LOCAL)

    [line] = reader.search(JobQuery(queues=(ALERT_QUEUE,))).jobs
    [job] = reader.jobs([line.id])
    assert job is not None
    assert (job.state, job.errors[0].type) == (JobState.RETRYING, "DeliveryFailed")
    assert "ConnectionRefusedError" in caplog.text


def test_an_unknown_certificate_is_not_believed(memory: Engine, calls: Calls) -> None:
    save_alert(memory.store(), WebhookChannel(name="ops", url=calls.url.replace("http:", "https:")))

    deliver_due(memory, policy=LOCAL)

    [state] = ends(memory.reader())
    assert state is JobState.RETRYING
    assert calls.seen == []
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED


@pytest.mark.shows("R-ALERT-08")
def test_a_mail_says_what_is_wrong(memory: Engine, mails: Mails) -> None:
    people = ("ann@example.com", "bob@example.com")
    save_alert(
        memory.store(),
        MailChannel(
            name="m", to=people, sender="f@example.com", host=LOOPBACK, port=mails.port, tls=TlsMode.NEVER
        ),
        AlertTransition.RESOLVED,
    )

    assert deliver_due(memory, policy=LOCAL) == 1

    [(receivers, text)] = mails.seen
    assert receivers == list(people)
    assert "Subject: [CRITICAL] resolved: Deep (mail): queue_depth is 11" in text
    assert "condition: queue_depth > 10" in text
    assert ends(memory.reader()) == [JobState.COMPLETED]


@pytest.mark.parametrize("tls", [TlsMode.STARTTLS, TlsMode.ALWAYS])
def test_a_mail_server_without_encryption_gets_nothing(memory: Engine, mails: Mails, tls: TlsMode) -> None:
    save_alert(
        memory.store(),
        MailChannel(
            name="m",
            to=("a@example.com",),
            sender="f@example.com",
            host=LOOPBACK,
            port=mails.port,
            tls=tls,
            username="u",
            password=WORD,
        ),
    )

    assert deliver_due(memory, policy=LOCAL) == 1

    assert mails.seen == []
    assert ends(memory.reader()) == [JobState.RETRYING]


@pytest.mark.parametrize("gone", ["alert", "alert-channel"])
def test_nothing_is_said_of_what_is_gone(memory: Engine, calls: Calls, gone: str) -> None:
    store = memory.store()
    save_alert(store, hook(calls))
    store.drop_document(gone, "01A" if gone == "alert" else "ops")

    deliver_due(memory, policy=LOCAL)

    assert calls.seen == []
    assert ends(memory.reader()) == [JobState.COMPLETED]


def test_a_receiver_that_does_not_answer_delays_no_other(memory: Engine, calls: Calls) -> None:
    store, reader = memory.store(), memory.reader()
    with closing(socket.create_server((LOOPBACK, 0))) as silent:
        save_alert(store, WebhookChannel(name="silent", url=f"http://{LOOPBACK}:{silent.getsockname()[1]}"))
        CHANNELS.save(store, "ops", hook(calls))
        store.insert([make_delivery_job(ALERT, AlertTransition.FIRED, hook(calls))])
        by_channel = {
            job.metadata["channel"]: job
            for job in reader.jobs([line.id for line in reader.search(JobQuery()).jobs])
            if job is not None
        }

        late = deliver(reader, by_channel["silent"], timeout=0.05, policy=LOCAL)
        again = deliver(reader, by_channel["silent"], policy=LOCAL)
        other = deliver(reader, by_channel["ops"], policy=LOCAL)

    assert "it took more than 0.05 seconds" in str(late)
    assert "an earlier delivery still hangs" in str(again)
    assert other is None
    awaited(lambda: all(one.name != "forebay-delivery" for one in threading.enumerate()))


def test_what_is_no_delivery_is_not_completed_unrun(memory: Engine) -> None:
    # No producer can make one; a release from before that could.
    job = new_job()
    msgspec.structs.force_setattr(job, "queue", ALERT_QUEUE)
    memory.store().insert([job])

    assert deliver_due(memory, policy=LOCAL) == 1

    assert ends(memory.reader()) == [JobState.DEAD]


def test_the_alert_evaluator_looks_and_delivers(
    engine: Engine, store: Store, reader: Reader, calls: Calls, clock: ManualClock
) -> None:
    RULES.save(store, "deep", AlertRule(id="deep", name="Deep", condition="queue_depth > 0"))
    CHANNELS.save(store, "ops", hook(calls))
    store.insert([new_job()])

    assert not AlertEvaluator(engine, clock, LOCAL).run(store)

    awaited(lambda: ends(reader) == [JobState.COMPLETED])
    assert len(calls.seen) == 1
    store.heartbeat(WorkerInfo(id=SWEEPER))
    with closing(engine.reader()) as own:
        assert not evaluate(store, own, clock).has_deliveries  # nothing new


def test_the_runner_of_maintenance_tasks_does_not_wait_for_an_evaluation(clock: ManualClock) -> None:
    goes_on, looks = threading.Event(), []

    class Slow(MemoryEngine):
        def reader(self) -> Any:
            looks.append(threading.current_thread().name)
            assert goes_on.wait(DEADLINE)
            return super().reader()

    engine = Slow(clock=clock)
    store, task = engine.store(), AlertEvaluator(engine, clock)
    clock.advance(seconds=10)

    ready = [task.is_ready]
    assert not task.run(store)
    clock.advance(seconds=60)
    ready.append(task.is_ready)
    assert not task.run(store)  # one look at a time
    goes_on.set()

    assert ready == [True, False]
    awaited(lambda: task.is_ready)
    assert looks == ["forebay-alerts"]


def test_deliveries_end_between_two_of_them(memory: Engine, calls: Calls) -> None:
    save_alert(memory.store(), hook(calls))
    memory.store().insert([make_delivery_job(ALERT, AlertTransition.RESOLVED, hook(calls))])
    is_stopping = iter([False, True])

    assert deliver_due(memory, lambda: next(is_stopping), LOCAL) == 1

    assert sorted(ends(memory.reader())) == [JobState.COMPLETED, JobState.PENDING]


def test_where_many_workers_write_minutes_are_read_instead_of_seconds(
    memory: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.operations.alerts.metric_snapshot.MAX_FINE_ROWS", 5)
    store, reader = memory.store(), memory.reader()
    store.insert([new_job()])
    start = start_of(clock.now_ms(), MINUTE) - MINUTE
    many = {"mail": TaskStats(counts={MetricEvent.FAILED: 1, MetricEvent.CLAIMED: 2})}
    rows = [
        MetricRow(
            resolution_ms=TEN_SECONDS,
            starts_at=start,
            queue=QueueName("default"),
            worker=f"w{number}",
            tasks=many,
        )
        for number in range(20)
    ]
    store.record_metrics([*rows, *roll_up(rows, MINUTE)])
    read, metrics = {}, reader.metrics

    def evaluate_slowly(tier: int, since: int, *rest: int, **more: Any) -> Any:
        read[tier] = since
        return metrics(tier, since, *rest, **more)

    monkeypatch.setattr(reader, "metrics", evaluate_slowly)
    evaluate(store, reader, clock)

    # No more of them than of seconds: `schedules-late` has a window of an hour, and asks for no rows.
    assert read[MINUTE] >= clock.now_ms() - FINE_MS - 2 * MINUTE
    [alert] = [kept.value for kept in ALERTS.all(reader).values() if kept.value.rule == "task-error-rate"]
    assert alert.metadata["values"]["failed"] == 20


def test_the_alert_evaluator_is_ready_at_its_interval_and_not_at_the_start(
    memory: Engine, clock: ManualClock
) -> None:
    tasks = {
        task.name: task
        for task in standard_tasks(sweeper=SWEEPER, clock=clock, roll=lambda: 0.5, engine=memory)
    }
    task = tasks["alert"]

    assert (task.every_ms, len(tasks)) == (10_000, 10)
    ready = []
    for later in (0, 10, 0, 5):  # a consumer asks after each claim
        clock.advance(seconds=later)
        ready.append(task.is_ready)
    assert ready == [False, True, False, True]


def test_what_goes_wrong_costs_a_line_in_the_log(
    memory: Engine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryEngine):
        def reader(self) -> Reader:
            raise StoreUnavailable("gone")

        def store(self) -> Any:
            raise StoreUnavailable("gone")

    with caplog.at_level(logging.WARNING):
        assert not AlertEvaluator(Away(clock=clock), clock).run(memory.store())
        assert deliver_due(Away(clock=clock)) == 0
        awaited(lambda: "alerts are evaluated at the next run: gone" in caplog.text)

    assert "alert notifications are delivered later: gone" in caplog.text


def test_all_rules_together_cost_a_few_looks(memory: Engine, clock: ManualClock) -> None:
    store, looks = memory.store(), []
    store.insert([new_job(queue=QueueName(f"q{number}")) for number in range(20)])
    reader = memory.reader()

    class Counted:
        def __getattr__(self, name: str) -> Any:
            looks.append(name)
            return getattr(reader, name)

    counted: Any = Counted()
    evaluate(store, counted, clock)

    # Rules and standings, the clock, jobs, queues, workers, the server, rows of hours and of seconds: those
    # of the window, and those of the consumers that are there now.
    assert sorted(looks) == sorted(
        ["documents"] * 2 + ["now", "counts", "queues", "workers", "server_usage"] + ["metrics"] * 3
    )
