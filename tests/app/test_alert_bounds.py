"""What alerts take at most, and what becomes of documents that cannot be read."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from forebay import Forebay
from forebay.app.alerts import MAX_CHANNELS, MAX_RULES
from forebay.domain.alert import Alert, AlertTransition, Severity
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.job import NewJob, QueueName
from forebay.domain.metrics import TEN_SECONDS, MetricRow, TaskStats, start_of
from forebay.domain.stored_document import Document
from forebay.errors import ConfigError, IllegalTransition
from forebay.operations.alerts.evaluation import HISTORY_LIMIT, MAX_NOTICES, MAX_SCOPES_PER_RULE
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, BOARD, RULES
from forebay.testing.manual_clock import ManualClock
from tests.app.alert_support import HOOK, put, steps, without_rules
from tests.clocks import FollowedClock


@pytest.fixture
def plain(clock: FollowedClock) -> Forebay:
    return without_rules(clock)


def test_many_alerts_come_in_portions(plain: Forebay) -> None:
    plain.alerts.add_rule("Deep", "pending > 0", id="deep", per="queue", cooldown=0)
    for number in range(MAX_NOTICES + 2):
        put(plain, 1, f"q{number}")

    assert (len(steps(plain)), len(steps(plain)), len(steps(plain))) == (MAX_NOTICES, 2, 0)
    plain.alerts.remove_rule("deep")
    assert (len(steps(plain)), len(steps(plain)), len(steps(plain))) == (MAX_NOTICES, 2, 0)
    assert len(plain.alerts.list(active=False)) == MAX_NOTICES + 2


def test_hundreds_of_queues_take_no_place_from_what_is_critical(plain: Forebay) -> None:
    for number in range(3):
        plain.alerts.add_rule("Deep", "pending > 0", id=f"deep{number}", per="queue")
    names = [QueueName(f"{number:03}" + "q" * 47) for number in range(300)]
    plain.enqueue_many([NewJob(task="t", queue=name) for name in names])
    for _ in range(7):
        plain.alerts.evaluate()

    plain.alerts.add_rule("Unserved", "pending > 1", id="unserved", per="queue", severity="critical")
    plain.alerts.add_rule("All", "pending > 300", id="whole")
    put(plain, 1, names[-1])

    assert steps(plain) == [AlertTransition.FIRED, AlertTransition.FIRED]
    active = plain.alerts.list(active=True, limit=1_000)
    assert {"unserved", "whole"} < {alert.rule for alert in active}
    assert sum(alert.rule == "deep0" for alert in active) == MAX_SCOPES_PER_RULE
    assert steps(plain) == []


def test_names_that_do_not_fit_into_a_document_come_one_by_one(
    plain: Forebay, caplog: pytest.LogCaptureFixture
) -> None:
    condition = " or ".join(["dead > 0"] * 40)
    for number in range(4):
        plain.alerts.add_rule("n" * 100, condition, id=f"{number}" * 50, per="task", severity="critical")
    for number in range(60):
        plain.alerts.add_rule("Any", condition, id=f"r{number:049}", severity="critical")
    names = [f"{number:03}" + "\U0001f600" * 97 for number in range(30)]
    tasks = {name: TaskStats({"dead": 1}) for name in names}
    row = MetricRow(
        resolution_ms=TEN_SECONDS,
        starts_at=start_of(plain.clock.now_ms(), TEN_SECONDS),
        queue=plain.default_queue,
        worker="w",
        tasks=tasks,
    )
    plain.client.write(lambda store: store.record_metrics([row]))

    with caplog.at_level(logging.WARNING):
        seen = [len(steps(plain)) for _ in range(20)]

    assert seen[0] == MAX_NOTICES
    assert 1 in seen
    assert "alerts come one by one" in caplog.text


def test_the_history_is_bounded(plain: Forebay, clock: ManualClock) -> None:
    old = Alert(id="", severity=Severity.INFO, source="", message="m", triggered_at=0, resolved_at=1)

    def fill(store: Any) -> None:
        for number in range(HISTORY_LIMIT):
            name = f"00{number:05}"
            ALERTS.save(store, name, replace(old, id=name))

    plain.client.write(fill)
    plain.alerts.add_rule("Deep", "queue_depth > 0", id="deep")
    put(plain, 1)
    plain.alerts.evaluate()

    known = plain.alerts.list(limit=1_000)
    assert HISTORY_LIMIT * 0.8 < len(known) < HISTORY_LIMIT
    assert known[0].rule == "deep"
    assert known[-1].id > old.id


@pytest.mark.parametrize(
    ("kind", "name"), [(RULES.kind, "deep"), (BOARD, "current"), (ALERTS.kind, "01A"), ("alert-channel", "c")]
)
def test_what_cannot_be_read_is_left_out(
    plain: Forebay, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Document(kind=kind, name=name, body='{"id": 1}' if kind != BOARD else "[]")
    plain.client.write(lambda store: store.save_document(broken))
    plain.alerts.add_rule("Deep", "queue_depth > 0", id="other")
    put(plain, 1)

    with caplog.at_level(logging.WARNING):
        assert steps(plain) == [AlertTransition.FIRED]
        assert len(plain.alerts.list()) == 1

    assert f"{kind} {name} cannot be read" in caplog.text
    assert steps(plain) == []


def test_what_cannot_be_read_can_be_replaced(plain: Forebay) -> None:
    broken = Document(kind=RULES.kind, name="deep", body='{"id": 1}')
    plain.client.write(lambda store: store.save_document(broken))

    plain.alerts.add_rule("Deep", "queue_depth > 0", id="deep")

    assert plain.alerts.rule("deep").name == "Deep"


def test_alerts_by_hand_are_bounded(plain: Forebay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.app.alerts.MAX_MANUAL_ALERTS", 2)
    first = plain.alerts.trigger("deploy", "It is late")
    plain.alerts.trigger("deploy", "It is late")

    with pytest.raises(ConfigError, match="there are 2 active alerts that were raised by hand; resolve some"):
        plain.alerts.trigger("deploy", "It is late")
    plain.alerts.resolve(first.id)
    plain.alerts.trigger("deploy", "It is late")


def test_rules_and_channels_are_bounded(plain: Forebay) -> None:
    for number in range(MAX_RULES - len(DEFAULT_ALERT_RULES)):
        plain.alerts.add_rule("Deep", "queue_depth > 0", id=f"r{number}")
    with pytest.raises(ConfigError, match="there are 100 rules"):
        plain.alerts.add_rule("Deep", "queue_depth > 0")
    with pytest.raises(IllegalTransition, match="there is a rule r1 already"):
        plain.alerts.add_rule("Deep", "queue_depth > 0", id="r1")
    for number in range(MAX_CHANNELS):
        plain.alerts.save_webhook(f"c{number}", HOOK)
    with pytest.raises(ConfigError, match="there are 20 channels"):
        plain.alerts.save_webhook("more", HOOK)
    plain.alerts.save_webhook("c1", HOOK, severity="critical")
