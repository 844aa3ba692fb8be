"""`app.alerts` on every engine: rules, alerts, channels."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, cast

import pytest

from forebay import Forebay
from forebay.app.alerts import Alerts
from forebay.domain.alert import AlertTransition, Severity
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.histogram import histogram_of
from forebay.domain.job import ALERT_QUEUE, QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.metrics import HOUR, MINUTE, TEN_SECONDS, MetricRow, TaskStats, start_of
from forebay.domain.queue import QueueState
from forebay.domain.store_health import ServerUsage
from forebay.domain.stored_document import Document
from forebay.domain.worker import WorkerInfo
from forebay.errors import AlertNotFound, AlertRuleNotFound, ConfigError, StoreUnavailable
from forebay.operations.alerts.evaluation import EvaluationResult, evaluate
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERT, RULES
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.app.alert_support import HOOK, put, steps, take_away, without_rules
from tests.app.watched_store import Watched
from tests.clocks import FollowedClock


@pytest.fixture
def plain(clock: FollowedClock) -> Forebay:
    return without_rules(clock)


def deliveries(app: Forebay) -> list[dict[str, Any]]:
    page = app.search(JobQuery(queues=(ALERT_QUEUE,)))
    jobs = [app.client.job(one.id) for one in reversed(page.jobs)]
    return [job.metadata for job in jobs if job is not None]


def happened(app: Forebay, now: int, tier: int = TEN_SECONDS, **counts: Any) -> None:
    """What a worker has seen of task t in the last moment."""
    errors = counts.pop("errors", {})
    runs = histogram_of(counts.pop("runs_us", [1_000]))
    waits = histogram_of(counts.pop("waits_us", [1_000]))
    row = MetricRow(
        resolution_ms=tier,
        starts_at=start_of(now, tier),
        queue=app.default_queue,
        worker="w",
        tasks={"t": TaskStats(counts, errors, waits, runs)},
    )
    app.client.write(lambda store: store.record_metrics([row]))


@pytest.mark.shows("R-ALERT-06", "R-ALERT-07", "R-ALERT-11", "R-ALERT-33", "R-TEST-36", "R-TEST-41")
def test_cp5_3_an_alert_fires_at_its_threshold_and_respects_its_cooldown(
    app: Forebay, clock: ManualClock
) -> None:
    app.alerts.add_rule("Deep", "queue_depth > 10", id="deep", severity="CRITICAL", cooldown=60)
    put(app, 10)
    assert steps(app) == []

    put(app, 1)
    assert steps(app) == [AlertTransition.FIRED]
    assert steps(app) == []  # it is active
    [alert] = app.alerts.list()
    assert (alert.rule, alert.severity, alert.is_active) == ("deep", "critical", True)
    assert app.alerts.list(acknowledged=True) == []
    acknowledged = app.alerts.acknowledge(alert.id)
    assert acknowledged.acknowledged_at == clock.now_ms()
    assert app.alerts.list(acknowledged=True, severity="critical") == [acknowledged]

    take_away(app)
    assert steps(app) == [AlertTransition.RESOLVED]
    assert app.alerts.get(alert.id).resolved_at == clock.now_ms()
    put(app, 11)
    assert steps(app) == []  # too soon
    clock.advance(ms=MINUTE - 1)
    assert steps(app) == []
    clock.advance(ms=1)
    assert AlertTransition.FIRED in steps(app)
    assert [one.is_active for one in app.alerts.list() if one.rule == "deep"] == [True, False]


@pytest.mark.shows("R-ALERT-02", "R-ALERT-11")
def test_a_condition_that_cannot_be_read_is_refused_before_anything_is_stored(clock: FollowedClock) -> None:
    app = Forebay("memory://", clock=clock)

    with pytest.raises(ConfigError, match="there is no metric 'depth'; there are"):
        app.alerts.add_rule("Deep", "depth > 10")
    with pytest.raises(ConfigError, match="there is no metric 'depth'; there are"):
        app.alerts.update_rule("queue-depth", condition="depth > 10")

    assert app.client.read(RULES.all) == {}


@pytest.mark.shows("R-ALERT-11")
def test_a_usual_rule_can_be_changed_and_removing_it_takes_that_back(app: Forebay) -> None:
    changed = app.alerts.update_rule("queue-depth", condition="queue_depth > 2", hold_for=10)
    app.alerts.update_rule("no-workers", enabled=False)

    assert (changed.condition, changed.hold_for_ms) == ("queue_depth > 2", 10_000)
    assert app.alerts.rule("queue-depth") == changed
    assert [rule.id for rule in app.alerts.rules() if not rule.enabled] == ["no-workers"]
    assert app.alerts.remove_rule("queue-depth")
    assert not app.alerts.remove_rule("queue-depth")
    assert app.alerts.rule("queue-depth") == DEFAULT_ALERT_RULES["queue-depth"]
    events = [event for _, event in app.client.read(lambda reader: reader.audit())]
    assert [(event.kind, event.detail) for event in events] == [
        (EventKind.ALERT_CHANGED, "removed rule queue-depth"),
        (EventKind.ALERT_CHANGED, "changed rule no-workers"),
        (EventKind.ALERT_CHANGED, "changed rule queue-depth"),
    ]
    assert events[1].changes == {"enabled": (True, False)}


@pytest.mark.shows("R-ALERT-21", "R-ALERT-34", "R-DLQ-17")
def test_one_failing_job_is_an_alert_that_can_be_seen(live_app: Forebay) -> None:
    @live_app.task(name="broken", retries=0)
    def broken() -> None:
        raise ValueError("no")

    live_app.alerts.add_rule("Errors", "error_rate > 0", id="errors", window=60)
    with live_app.run_worker():
        assert broken.enqueue().wait(60).state == "dead"

    live_app.alerts.evaluate()

    found = {alert.rule: alert for alert in live_app.alerts.list()}
    assert found["errors"].metadata["values"] == {"error_rate": 1.0}
    assert found["dead-letters"].severity is Severity.CRITICAL


def test_a_rule_for_each_queue_has_an_alert_for_each_that_ends_with_it(plain: Forebay) -> None:
    plain.alerts.add_rule("Deep", "pending > 1", id="deep", per="queue", cooldown=0)
    put(plain, 2, "a")
    put(plain, 2, "b")
    put(plain, 1, "c")

    assert steps(plain) == [AlertTransition.FIRED, AlertTransition.FIRED]
    assert sorted(alert.source for alert in plain.alerts.list()) == ["a", "b"]
    take_away(plain, "a")
    assert steps(plain) == [AlertTransition.RESOLVED]
    assert [alert.source for alert in plain.alerts.list(active=True)] == ["b"]
    plain.alerts.update_rule("deep", per=None, queue="a")
    assert steps(plain) == [AlertTransition.RESOLVED]
    plain.alerts.update_rule("deep", queue="b")
    assert steps(plain) == [AlertTransition.FIRED]
    assert plain.alerts.remove_rule("deep")
    assert steps(plain) == [AlertTransition.RESOLVED]


@pytest.mark.shows("R-ALERT-03")
def test_labels_restrict_a_rule_to_a_queue_or_a_task(plain: Forebay, clock: ManualClock) -> None:
    plain.alerts.add_rule("Mail", "queue_depth > 1", id="mail", queue="mail")
    plain.alerts.add_rule("Other", "failed > 1", id="other", task="u")
    put(plain, 2)
    happened(plain, clock.now_ms(), failed=2)
    assert steps(plain) == []

    put(plain, 2, "mail")
    plain.alerts.update_rule("other", task="t")

    assert steps(plain) == [AlertTransition.FIRED, AlertTransition.FIRED]
    assert {alert.source for alert in plain.alerts.list()} == {"mail", "t"}


def send_heartbeat(
    app: Forebay, name: str, queue: str = "default", *, at: int | None = None, stuck: int = 0
) -> None:
    info = WorkerInfo(id=WorkerId(name), queues=(QueueName(queue),), heartbeat_at=at or 0, stuck=stuck)
    app.client.write(lambda store: store.heartbeat(info))


def unserved(app: Forebay, clock: ManualClock) -> None:
    send_heartbeat(app, "w", "other")
    put(app, 1)


def uneven(app: Forebay, clock: ManualClock) -> None:
    put(app, 1)
    happened(app, clock.now_ms(), waits_us=[1_000] * 90 + [2_000_000] * 10)


def filled(app: Forebay, clock: ManualClock) -> None:
    app.client.write(lambda store: store.save_queue(QueueName("default"), {"max_length": 10}))
    put(app, 10)


def slower(app: Forebay, clock: ManualClock) -> None:
    happened(app, clock.now_ms() - HOUR, HOUR, completed=9_000, runs_us=[50_000] * 9_000)
    happened(app, clock.now_ms(), completed=20, runs_us=[450_000] * 20)
    put(app, 1)


def test_short_runs_that_take_twice_as_long_are_not_worth_an_alert(
    plain: Forebay, clock: ManualClock
) -> None:
    plain.alerts.update_rule("slow-runs", enabled=True)
    happened(plain, clock.now_ms() - HOUR, HOUR, completed=9_000, runs_us=[1_000] * 9_000)
    happened(plain, clock.now_ms(), completed=20, runs_us=[90_000] * 20)

    assert steps(plain) == []


def late(app: Forebay, clock: ManualClock) -> None:
    app.task(name="tidy")(lambda: None)
    app.schedules.save("t", "tidy", every=60)
    clock.advance(ms=3 * MINUTE)


def unwell(app: Forebay, clock: ManualClock) -> None:
    send_heartbeat(app, "w1")
    send_heartbeat(app, "w2", stuck=1)


@pytest.mark.shows("R-ALERT-12", "R-ALERT-13", "R-ALERT-16", "R-ALERT-17", "R-ALERT-18", "R-ALERT-19")
@pytest.mark.shows("R-ALERT-20", "R-ALERT-21", "R-ALERT-22", "R-ALERT-23", "R-ALERT-27", "R-SCHED-38")
@pytest.mark.shows("R-ALERT-28", "R-ALERT-30", "R-ALERT-31", "R-ALERT-32", "R-DLQ-17", "R-RATE-16")
@pytest.mark.shows("R-EDGE-64", "R-MET-48", "R-EDGE-62")
@pytest.mark.parametrize(
    ("rule_id", "severity", "arrange"),
    [
        ("dead-letters", "critical", lambda app, clock: happened(app, clock.now_ms(), dead=1)),
        ("dead-letters-surge", "critical", lambda app, clock: happened(app, clock.now_ms(), dead=11)),
        ("error-rate", "warning", lambda app, clock: happened(app, clock.now_ms(), failed=6, completed=94)),
        (
            "task-error-rate",
            "warning",
            lambda app, clock: happened(app, clock.now_ms(), failed=6, completed=94),
        ),
        ("timeouts", "warning", lambda app, clock: happened(app, clock.now_ms(), errors={"Timeout": 3})),
        ("wait-time-skew", "warning", uneven),
        ("queue-depth", "warning", lambda app, clock: put(app, 1_001)),
        ("queue-nearly-full", "warning", filled),
        ("queue-full", "warning", filled),
        ("queue-unserved", "critical", unserved),
        ("no-workers", "critical", lambda app, clock: put(app, 1)),
        ("slow-runs", "warning", slower),
        ("throughput-low", "warning", slower),
        ("schedules-late", "warning", late),
        ("workers-unhealthy", "warning", unwell),
    ],
)
def test_the_usual_rules_find_what_they_are_for(
    plain: Forebay, clock: ManualClock, rule_id: str, severity: str, arrange: Any
) -> None:
    rule = plain.alerts.update_rule(rule_id, enabled=True)
    assert steps(plain) == []

    arrange(plain, clock)
    if rule.hold_for_ms:
        assert steps(plain) == []  # not at once
        plain.alerts.update_rule(rule_id, hold_for=0)

    assert steps(plain) == [AlertTransition.FIRED]
    [alert] = plain.alerts.list()
    assert (alert.rule, alert.severity) == (rule_id, severity)


@pytest.mark.shows("R-ALERT-32", "R-EDGE-62")
def test_a_clock_that_is_not_the_stores_is_found(plain: Forebay, clock: ManualClock) -> None:
    plain.alerts.update_rule("clock-skew", enabled=True)
    wrong = ManualClock(now_ms=clock.now_ms() - 6_000)

    assert steps(plain) == []
    [notice] = Alerts(plain.client, wrong).evaluate().notices
    assert notice.alert is not None
    assert notice.alert.metadata["looked"].endswith(f":{os.getpid()}")


class Ailing:
    """A store whose server is at its limits."""

    def __init__(self, reader: Reader, vitals: ServerUsage) -> None:
        self._reader = reader
        self._vitals = vitals

    def __getattr__(self, name: str) -> Any:
        return (lambda: self._vitals) if name == "server_usage" else getattr(self._reader, name)


@pytest.mark.shows("R-ALERT-15", "R-STORE-63", "R-EDGE-70", "R-MET-49", "R-STORE-31")
@pytest.mark.shows("R-ALERT-14", "R-ALERT-24", "R-ALERT-26")
@pytest.mark.parametrize(
    ("rule_id", "severity", "well", "ill"),
    [
        ("store-connections", "critical", {"connections": 94}, {"connections": 95}),
        ("store-evictions", "critical", {"evicted": 0}, {"evicted": 1}),
        ("store-evictions", "critical", {"evicted": 9}, {"evicted": 1}),  # the server was started anew
        ("store-memory", "warning", {"memory": 850}, {"memory": 851}),
        ("store-large", "warning", {"memory": 500_000_000}, {"memory": 500_000_001}),
    ],
)
def test_a_server_at_its_limits_is_found(
    plain: Forebay, rule_id: str, severity: str, well: dict[str, int], ill: dict[str, int]
) -> None:
    plain.alerts.update_rule(rule_id, enabled=True)

    def look(seen: dict[str, int]) -> list[str]:
        vitals = ServerUsage(**{"connection_limit": 100, "memory_limit": 1_000, **seen})

        def work(store: Store, reader: Reader) -> EvaluationResult:
            ailing: Any = Ailing(reader, vitals)
            return evaluate(store, ailing, plain.clock)

        notices = plain.client.write(
            lambda store: plain.client.read(lambda reader: work(store, reader))
        ).notices
        return [one.alert.severity for one in notices if one.alert is not None]

    assert (look(well), look(well), look(ill)) == ([], [], [severity])


@pytest.mark.shows("R-ALERT-14", "R-ALERT-24", "R-ALERT-26")
def test_what_a_server_says_of_itself_is_what_rules_see(app: Forebay) -> None:
    app.alerts.update_rule("store-connections", condition="store_connections_used_ratio > 0")
    app.alerts.update_rule("store-memory", condition="store_memory_used_ratio > 0")
    app.alerts.update_rule("store-large", condition="store_memory > 0")
    vitals = app.client.read(lambda reader: reader.server_usage())

    app.alerts.evaluate()

    found = {alert.rule for alert in app.alerts.list()}
    assert ("store-connections" in found) == (vitals.connections is not None)
    assert ("store-memory" in found) == ("store-large" in found) == (vitals.memory is not None)


@pytest.mark.shows("R-ALERT-08", "R-ALERT-09")
def test_an_evaluator_that_dies_after_the_decision_leaves_the_notification_to_the_next(app: Forebay) -> None:
    app.alerts.add_rule("Deep", "queue_depth > 0", id="deep")
    app.alerts.save_webhook("ops", HOOK)
    put(app, 1)

    for broken in ("save_document", "insert"):  # the alert is not written; no channel is told
        with pytest.raises(StoreUnavailable):
            dying(app, broken)
    assert app.alerts.evaluate().has_deliveries

    assert [alert.rule for alert in app.alerts.list()] == ["deep"]
    [alert] = app.alerts.list()
    assert deliveries(app) == [{"alert": alert.id, "step": "fired", "channel": "ops"}]
    assert not app.alerts.evaluate().notices
    assert len(deliveries(app)) == 1


def dying(app: Forebay, broken: str) -> None:
    """Look at all rules until the second document, or the first delivery, would be written."""
    written: list[str] = []

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        written.append(name)
        if name == broken and (broken == "insert" or written.count(name) > 1):
            raise StoreUnavailable("gone")

    def work(store: Any) -> None:
        watched = Watched(store, trouble).contract
        app.client.read(lambda reader: evaluate(watched, reader, app.clock))

    app.client.write(work)


def test_the_end_of_an_alert_that_was_forgotten_meanwhile_is_not_notified(app: Forebay) -> None:
    app.alerts.add_rule("Deep", "queue_depth > 0", id="deep")
    app.alerts.save_webhook("ops", HOOK)
    put(app, 1)
    app.alerts.evaluate()
    [alert] = app.alerts.list()
    take_away(app)
    with pytest.raises(StoreUnavailable):
        dying(app, "save_document")  # that it is over is known, and was not written
    assert app.client.write(lambda store: store.drop_document(ALERT, alert.id))

    app.alerts.evaluate()

    assert app.alerts.list() == []
    assert [one["step"] for one in deliveries(app)] == ["fired"]


class Crowded:
    """A store in which another evaluator is always faster to write an alert."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def save_document(self, document: Document, **options: Any) -> bool:
        return document.kind != ALERT and self._store.save_document(document, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_an_alert_that_others_write_again_and_again_is_left_to_the_next_look(plain: Forebay) -> None:
    plain.alerts.add_rule("Deep", "queue_depth > 0", id="deep")
    put(plain, 1)

    def work(store: Store) -> None:
        crowded = cast(Store, Crowded(store))
        plain.client.read(lambda reader: evaluate(crowded, reader, plain.clock))

    with pytest.raises(StoreUnavailable, match="is changed by other processes again and again"):
        plain.client.write(work)
    plain.alerts.evaluate()

    assert [alert.rule for alert in plain.alerts.list()] == ["deep"]


@pytest.mark.shows("R-DLQ-17")
def test_who_is_told_is_up_to_the_severity(plain: Forebay) -> None:
    plain.alerts.save_webhook("all", HOOK)
    plain.alerts.save_webhook("bad", HOOK, severity="critical")
    plain.alerts.save_webhook("none", HOOK, enabled=False)

    alert = plain.alerts.trigger("deploy", "It is late", details={"who": "ann"})
    plain.alerts.resolve(alert.id)
    plain.alerts.trigger("outage", "It is dark", severity="CRITICAL")

    assert [(one["step"], one["channel"]) for one in deliveries(plain)] == [
        ("fired", "all"),
        ("resolved", "all"),
        ("fired", "all"),
        ("fired", "bad"),
    ]


def test_a_closed_queue_of_deliveries_stops_no_alert(
    plain: Forebay, caplog: pytest.LogCaptureFixture
) -> None:
    plain.alerts.save_webhook("ops", HOOK)
    plain.client.write(lambda store: store.save_queue(ALERT_QUEUE, state=QueueState.DRAINING))

    with caplog.at_level(logging.WARNING):
        plain.alerts.trigger("deploy", "It is late")

    assert len(plain.alerts.list()) == 1
    assert "alert notifications are not delivered" in caplog.text


@pytest.mark.shows("R-ALERT-10")
def test_an_alert_by_hand_is_active_until_an_operator_resolves_it(app: Forebay) -> None:
    alert = app.alerts.trigger("deploy", "It is late", severity="info", details={"who": "ann"})
    app.alerts.evaluate()

    assert app.alerts.get(alert.id) == alert
    resolved = app.alerts.resolve(alert.id)
    assert (resolved.resolved_by, resolved.is_active) == (app.client.actor, False)
    assert app.alerts.resolve(alert.id) == resolved
    assert app.alerts.acknowledge(alert.id) == app.alerts.acknowledge(alert.id)
    with pytest.raises(ConfigError, match="is no severity: there are critical, warning, info"):
        app.alerts.trigger("deploy", "It is late", severity="loud")


def test_what_is_resolved_by_hand_and_still_holds_comes_again_after_the_cooldown(
    plain: Forebay, clock: ManualClock
) -> None:
    plain.alerts.add_rule("Deep", "queue_depth > 0", id="deep", cooldown=60)
    put(plain, 1)
    plain.alerts.evaluate()
    plain.alerts.resolve(plain.alerts.list()[0].id)

    assert steps(plain) == []
    clock.advance(ms=MINUTE)
    assert steps(plain) == [AlertTransition.FIRED]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "a rule has no colour"),
        ({"severity": "loud"}, "is no severity"),
        ({"per": "worker"}, "is no scope: there are queue, task"),
        ({"window": 1}, "window must be from 10"),
    ],
)
def test_a_rule_that_is_wrong_is_refused(plain: Forebay, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plain.alerts.add_rule("Deep", "queue_depth > 0", **options)


def test_what_is_not_there_is_said_to_be_missing(plain: Forebay) -> None:
    with pytest.raises(AlertNotFound, match="there is no alert 'x'"):
        plain.alerts.acknowledge("x")
    with pytest.raises(AlertNotFound, match="there is no alert 'x'"):
        plain.alerts.get("x")
    with pytest.raises(AlertRuleNotFound, match="there is no rule 'x'"):
        plain.alerts.rule("x")
    with pytest.raises(AlertRuleNotFound, match="there is no rule 'x'"):
        plain.alerts.update_rule("x", enabled=False)
    assert not plain.alerts.remove_channel("x")


def test_secrets_of_channels_are_shown_nowhere(app: Forebay) -> None:
    word = "s3cret"
    app.alerts.save_webhook("ops", "https://example.com/T0K3N", secret="other" + word)
    app.alerts.save_webhook("ops", "https://example.com/T0K3N", secret=word)
    app.alerts.save_email(
        "mail", ["a@example.com"], sender="f@example.com", host="mx", password=word, tls="STARTTLS"
    )

    shown = app.alerts.channels()
    events = [event for _, event in app.client.read(lambda reader: reader.audit())]
    assert [one.name for one in shown] == ["mail", "ops"]
    assert [event.detail for event in events] == [
        "saved channel mail",
        "saved channel ops",
        "saved channel ops",
    ]
    assert events[1].changes == {"secret": (None, "changed")}
    assert word not in f"{shown} {events}"
    assert "T0K3N" not in f"{shown} {events}"
    assert app.alerts.remove_channel("ops")


def test_a_channel_of_mails_that_is_wrong_is_refused(plain: Forebay) -> None:
    wrong: Any = {"colour": "red"}
    options: Any = {"sender": "f@example.com", "host": "mx"}
    with pytest.raises(ConfigError, match=r"write to=\['a@example.com'\]"):
        plain.alerts.save_email("mail", "a@example.com", **options)
    with pytest.raises(ConfigError, match="has no colour"):
        plain.alerts.save_email("mail", ["a@example.com"], **wrong, **options)
    with pytest.raises(ConfigError, match="is no tls: there are starttls, always, never"):
        plain.alerts.save_email("mail", ["a@example.com"], tls="maybe", severity="info", **options)


def test_coroutines_have_the_same(plain: Forebay) -> None:
    async def scene() -> None:
        alert = await plain.alerts.trigger_async("deploy", "It is late")
        assert await plain.alerts.list_async() == [alert]
        assert (await plain.alerts.acknowledge_async(alert.id)).acknowledged_at is not None
        assert not (await plain.alerts.resolve_async(alert.id)).is_active

    asyncio.run(scene())
