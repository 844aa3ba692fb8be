"""`forebay alerts`."""

from __future__ import annotations

from click.testing import CliRunner

from forebay.cli.main import main
from forebay.domain.alert_channel import MailChannel, WebhookChannel
from forebay.operations.alerts.stored_rules_alerts_and_channels import CHANNELS
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, put, refusal

WORD = "s3cret"


def test_alerts_are_raised_acknowledged_and_resolved(store: Store) -> None:
    answer("alerts", "set-rule", "deep", "--name", "Deep", "--condition", "queue_depth > 0")
    put(store)

    assert call("alerts", "check").stdout == "1 alerts were raised or resolved\n"
    [alert] = answer("alerts", "--active", "--unacknowledged")["alerts"]
    assert "Deep: queue_depth is 1" in call("alerts").stdout
    assert "acknowledged by" in call("alerts", "ack", alert["id"]).stdout
    assert "acknowledged" in call("alerts").stdout
    assert answer("alerts", "list", "--unacknowledged")["alerts"] == []
    assert answer("alerts", "resolve", alert["id"])["resolved_at"] is not None
    assert "resolved" in call("alerts").stdout
    assert refusal("alerts", "ack", "none")["kind"] == "AlertNotFound"


def test_an_alert_can_be_raised_by_hand(store: Store) -> None:
    raised = answer("alerts", "trigger", "deploy", "Late", "--severity", "critical", "--details", '{"a": 1}')

    assert raised["metadata"] == {"kind": "deploy", "details": {"a": 1}}
    assert [one["id"] for one in answer("alerts", "list", "--severity", "critical")["alerts"]] == [
        raised["id"]
    ]
    assert "object in JSON" in refusal("alerts", "trigger", "deploy", "Late", "--details", "[]")["message"]


def test_rules_are_made_changed_and_removed(store: Store) -> None:
    assert "needs --condition" in refusal("alerts", "set-rule", "slow", "--hold-for", "5s")["message"]
    made = answer(
        *("alerts", "set-rule", "slow", "--condition", "run_p99_ms > 5000", "--per", "task"),
        *("--window", "1m", "--hold-for", "5s", "--cooldown", "10m", "--severity", "critical"),
    )
    assert (made["window_ms"], made["hold_for_ms"], made["cooldown_ms"]) == (60_000, 5_000, 600_000)
    assert answer("alerts", "set-rule", "slow", "--disable")["enabled"] is False
    assert answer("alerts", "set-rule", "slow", "--enable")["enabled"] is True
    assert "run_p99_ms > 5000 (per=task)" in call("alerts", "rules").stdout
    assert "queue_used_ratio" in call("alerts", "rules", "--metrics").stdout
    assert call("alerts", "remove-rule", "slow", "--yes").stdout == "rule slow removed\n"
    assert refusal("alerts", "remove-rule", "slow", "--yes")["kind"] == "AlertRuleNotFound"
    assert "is reset to its default" in call("alerts", "remove-rule", "queue-depth", "--yes").stdout
    assert "there is no metric" in refusal("alerts", "set-rule", "bad", "--condition", "a > 1")["message"]


def test_channels_are_saved_and_their_secrets_not_shown(store: Store, reader: Reader) -> None:
    CliRunner().invoke(main, ["alerts", "webhook", "ops", "https://example.com/T0K3N", "--secret", "-"], WORD)
    answer(
        *("alerts", "email", "post", "a@example.com", "b@example.com", "--from", "f@example.com"),
        *("--host", "mx", "--password", WORD, "--username", "u", "--severity", "critical"),
    )

    kept = {name: one.value for name, one in CHANNELS.all(reader).items()}
    assert isinstance(kept["ops"], WebhookChannel)
    assert isinstance(kept["post"], MailChannel)
    assert kept["ops"].secret == kept["post"].password == WORD
    shown = call("alerts", "channels").stdout + str(answer("alerts", "channels"))
    assert WORD not in shown
    assert "T0K3N" not in shown
    assert "a@example.com, b@example.com" in shown
    assert call("alerts", "remove-channel", "ops").stdout == "channel ops removed\n"
    assert call("alerts", "remove-channel", "ops").stdout == "there is no channel ops\n"
