"""Rules of alerts: what they may say, when they fire and when it is over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.domain.alert import (
    ALERT_METRICS,
    AlertRule,
    AlertScope,
    AlertTransition,
    RuleState,
    Severity,
    advance,
    apply_changes,
    manual_alert,
    raise_alert,
)
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.errors import ConfigError

RULE = AlertRule(id="deep", name="Deep", condition="queue_depth > 10")


@pytest.mark.shows("R-ALERT-01", "R-CFG-63")
def test_a_rule_has_the_defaults_that_are_promised() -> None:
    assert RULE.severity is Severity.WARNING
    assert (RULE.window_ms, RULE.cooldown_ms, RULE.hold_for_ms) == (300_000, 300_000, 0)
    assert RULE.enabled
    assert (RULE.queue, RULE.task, RULE.per) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "No Such"}, "cannot be the id of a rule"),
        ({"name": ""}, "name must be a text"),
        ({"name": "a\nb"}, "control characters"),
        ({"condition": "nothing > 1"}, "there is no metric 'nothing'"),
        ({"window_ms": 9_999}, "window must be from 10 to 86,400 seconds"),
        ({"enabled": "no"}, "enabled is true or false, not 'no'"),
        ({"hold_for_ms": -1}, "hold must be from 0 to"),
        ({"cooldown_ms": 8 * 86_400_000}, "cooldown must be from 0 to"),
        ({"queue": "no queue"}, "rule deep"),
        ({"task": ""}, "rule deep"),
        ({"per": AlertScope.QUEUE, "queue": "mail"}, "cannot look at each"),
        ({"per": AlertScope.TASK, "task": "t", "condition": "failed > 1"}, "cannot look at each"),
        ({"task": "t"}, "queue_depth is not known by task; there are"),
        ({"per": AlertScope.TASK}, "queue_depth is not known by task"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply_changes(replace(RULE, id=changes.pop("id", RULE.id)), changes)


def test_only_what_a_rule_has_can_be_changed() -> None:
    assert apply_changes(RULE, {"task": "t", "condition": "failed > 1"}).task == "t"
    with pytest.raises(ConfigError, match="a rule has no colour, id that could be changed"):
        apply_changes(RULE, {"id": "x", "colour": "red"})


def test_severities_have_an_order() -> None:
    assert Severity.CRITICAL.reaches(Severity.WARNING)
    assert Severity.WARNING.reaches(Severity.WARNING)
    assert not Severity.INFO.reaches(Severity.WARNING)


@pytest.mark.shows("R-ALERT-04", "R-ALERT-07", "R-ALERT-09", "R-TEST-36")
def test_a_rule_holds_fires_is_silent_while_active_resolves_and_cools_down() -> None:
    rule = replace(RULE, hold_for_ms=20_000, cooldown_ms=60_000)
    state, steps = RuleState(), []
    for second in range(0, 140, 10):
        holds = second not in (0, 50)
        state, step = advance(state, rule, holds=holds, now=second * 1_000)
        if step is AlertTransition.FIRED:
            state = replace(state, alert=f"a{second}")
        steps.append((second, step))

    assert [one for one in steps if one[1] is not None] == [
        (30, AlertTransition.FIRED),
        (50, AlertTransition.RESOLVED),
        (90, AlertTransition.FIRED),
    ]


@pytest.mark.shows("R-ALERT-04")
def test_a_disabled_rule_never_fires_and_ends_what_it_has_raised() -> None:
    rule = replace(RULE, enabled=False)

    assert advance(RuleState(), rule, holds=True, now=1) == (RuleState(), None)
    after, step = advance(RuleState(since=0, alert="a", fired_at=0), rule, holds=True, now=1)
    assert (after, step) == (RuleState(fired_at=0), AlertTransition.RESOLVED)


def test_a_clock_that_was_set_back_holds_nothing_up_for_longer_than_it_takes() -> None:
    rule = replace(RULE, hold_for_ms=10_000)
    ahead = RuleState(since=900_000, fired_at=900_000)

    after, step = advance(ahead, rule, holds=True, now=100_000)

    assert (after, step) == (RuleState(since=100_000, fired_at=100_000), None)
    assert advance(after, rule, holds=True, now=400_000)[1] is AlertTransition.FIRED


def test_what_is_at_rest_need_not_be_remembered() -> None:
    assert RuleState().is_idle(1_000, 0)
    assert RuleState(fired_at=0).is_idle(1_000, 1_000)
    assert not RuleState(fired_at=0).is_idle(1_000, 999)
    assert not RuleState(since=0).is_idle(0, 9)
    assert not RuleState(alert="a").is_idle(0, 9)


@given(
    looks=st.lists(st.tuples(st.booleans(), st.integers(1, 90)), max_size=60),
    hold=st.integers(0, 120),
    cooldown=st.integers(0, 120),
)
def test_whatever_happens_alerts_alternate_and_keep_their_distance(
    looks: list[tuple[bool, int]], hold: int, cooldown: int
) -> None:
    rule = replace(RULE, hold_for_ms=hold, cooldown_ms=cooldown)
    state, now, since = RuleState(), 0, None
    fired: list[int] = []
    for holds, later in looks:
        now += later
        since = (now if since is None else since) if holds else None
        was_active = state.alert is not None
        state, step = advance(state, rule, holds=holds, now=now)
        if step is AlertTransition.FIRED:
            assert holds
            assert not was_active
            assert since is not None
            assert now - since >= hold
            assert not fired or now - fired[-1] >= cooldown
            fired.append(now)
            state = replace(state, alert="a")
        elif step is AlertTransition.RESOLVED:
            assert was_active
            assert not holds
        assert state.alert is None or holds


@pytest.mark.shows("R-ALERT-05", "R-ALERT-03")
def test_an_alert_says_what_was_seen_and_where() -> None:
    rule = replace(RULE, per=AlertScope.QUEUE, severity=Severity.CRITICAL)

    alert = raise_alert(rule, "01A", "mail", {"queue_depth": 11.0}, 5)

    assert (alert.id, alert.rule, alert.severity, alert.source) == ("01A", "deep", "critical", "mail")
    assert alert.message == "Deep (mail): queue_depth is 11"
    assert (alert.condition, alert.triggered_at) == ("queue_depth > 10", 5)
    assert alert.metadata == {"values": {"queue_depth": 11.0}, "window_seconds": 300.0, "queue": "mail"}
    assert alert.is_active
    assert (alert.transition, replace(alert, resolved_at=6).transition) == (
        AlertTransition.FIRED,
        AlertTransition.RESOLVED,
    )
    assert (alert.acknowledged_at, alert.resolved_at) == (None, None)


@pytest.mark.parametrize(
    ("labels", "source"), [({}, "deep"), ({"queue": "mail"}, "mail"), ({"task": "t"}, "t")]
)
def test_an_alert_is_about_what_its_rule_is_about(labels: dict[str, Any], source: str) -> None:
    rule = replace(RULE, condition="failed > 1", **labels)

    assert raise_alert(rule, "01A", None, {}, 0).source == source


@pytest.mark.shows("R-ALERT-10")
def test_an_alert_by_hand_has_a_kind_and_details() -> None:
    alert = manual_alert("01A", "deploy", "It is late", Severity.INFO, {"who": "ann"}, 7)

    assert (alert.source, alert.rule, alert.triggered_at) == ("manual", None, 7)
    assert alert.metadata == {"kind": "deploy", "details": {"who": "ann"}}


@pytest.mark.parametrize(
    ("kind", "message", "details", "wrong"),
    [
        ("", "m", {}, "kind must be a text"),
        ("k", "a\nb", {}, "control characters"),
        ("k", "m", {"a": object()}, "must be JSON"),
        ("k", "m", {"a": "x" * 5_000}, "the limit is 4,096"),
        ("k", "m", {"a": json.loads("[" * 100 + "]" * 100)}, "nested deeper than 100 levels"),
    ],
)
def test_an_alert_by_hand_that_cannot_be_kept_is_refused(
    kind: str, message: str, details: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong):
        manual_alert("01A", kind, message, Severity.INFO, details, 0)


def test_the_usual_rules_can_be_read_and_every_metric_is_described() -> None:
    assert {rule_id: rule.id for rule_id, rule in DEFAULT_ALERT_RULES.items()} == {
        key: key for key in DEFAULT_ALERT_RULES
    }
    assert all(
        rule.parsed_condition.metrics() <= ALERT_METRICS.keys() for rule in DEFAULT_ALERT_RULES.values()
    )
    assert all(ALERT_METRICS.values())
