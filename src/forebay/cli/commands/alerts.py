"""`forebay alerts`: alerts, their rules and their channels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from forebay.app.alerts import Alerts
from forebay.cli.commands.worker_admin import DefaultListGroup
from forebay.cli.json_format import iso_instant
from forebay.cli.options import DurationParam, limit_option, with_store, yes_option
from forebay.cli.output import Output, confirm, format_duration, format_instant, print_table
from forebay.cli.store_session import StoreSession
from forebay.domain.alert import ALERT_METRICS, Alert, AlertRule, AlertScope, Severity
from forebay.domain.alert_channel import Channel, TlsMode, WebhookChannel
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.errors import AlertRuleNotFound, ConfigError

ID = click.argument("alert_id", metavar="ID")
RULE = click.argument("rule_id", metavar="RULE")
NAME = click.argument("name", metavar="NAME")
SEVERITIES = click.Choice([severity.value for severity in Severity], case_sensitive=False)
MIN_SEVERITY = click.option(
    "--severity", type=SEVERITIES, default="info", show_default=True, help="Alerts of at least this severity."
)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: `forebay alerts`, `forebay alerts ack 01KXY...`, "
    "`forebay alerts set-rule deep --condition 'queue_depth > 100' --queue mail`.",
)
def alerts() -> None:
    """List and acknowledge alerts, and edit their rules and channels.

    Workers and servers evaluate the rules every ten seconds. Without a command the alerts are listed.
    """


@alerts.command("list")
@click.option("--severity", type=SEVERITIES, help="Alerts of this severity only.")
@click.option("--active", is_flag=True, help="Leave out resolved alerts.")
@click.option("--unacknowledged", is_flag=True, help="Leave out acknowledged alerts.")
@limit_option(50)
@with_store()
def list_alerts(
    session: StoreSession, out: Output, severity: str | None, active: bool, unacknowledged: bool, limit: int
) -> None:
    """List alerts, newest first. This is what `forebay alerts` alone does."""
    found = _open_alerts(session).list(
        severity=severity,
        active=True if active else None,
        acknowledged=False if unacknowledged else None,
        limit=min(limit, 1_000),
    )
    out.print_result({"alerts": [alert_json(alert) for alert in found]}, lambda: _print_alerts(found))


@alerts.command()
@ID
@with_store()
def ack(session: StoreSession, out: Output, alert_id: str) -> None:
    """Acknowledge an alert."""
    alert = _open_alerts(session).acknowledge(alert_id)
    out.print_message(alert_json(alert), f"alert {alert_id} acknowledged by {alert.acknowledged_by}")


@alerts.command()
@ID
@with_store()
def resolve(session: StoreSession, out: Output, alert_id: str) -> None:
    """Resolve an alert. If its condition still holds, it is raised again after the cooldown."""
    out.print_message(alert_json(_open_alerts(session).resolve(alert_id)), f"alert {alert_id} resolved")


@alerts.command()
@click.argument("kind", metavar="KIND")
@click.argument("message", metavar="MESSAGE")
@click.option("--severity", type=SEVERITIES, default="warning", show_default=True)
@click.option("--details", metavar="JSON", default="{}", help="Further details, as a JSON object.")
@with_store()
def trigger(session: StoreSession, out: Output, kind: str, message: str, severity: str, details: str) -> None:
    """Raise an alert by hand; it is active until it is resolved by hand."""
    try:
        parsed = msgspec.json.decode(details, type=dict[str, Any])
    except ValueError as exc:
        raise ConfigError(f"--details must be an object in JSON: {exc}") from exc
    alert = _open_alerts(session).trigger(kind, message, severity=severity, details=parsed)
    out.print_message(alert_json(alert), f"alert {alert.id} raised")


@alerts.command()
@with_store()
def check(session: StoreSession, out: Output) -> None:
    """Evaluate all rules now, as workers and servers do every ten seconds."""
    notices = _open_alerts(session).evaluate().notices
    changes = [{"id": notice.alert_id, "event": notice.step.value} for notice in notices]
    out.print_message({"alerts": changes}, f"{len(changes)} alerts were raised or resolved")


# Rules


@alerts.command()
@click.option("--metrics", is_flag=True, help="List the metrics that conditions can use.")
@with_store()
def rules(session: StoreSession, out: Output, metrics: bool) -> None:
    """List the alert rules."""
    found = _open_alerts(session).rules()
    answer = {"rules": [rule_json(rule) for rule in found], "metrics": ALERT_METRICS}
    if metrics:
        out.print_result(answer, lambda: print_table(("metric", "meaning"), sorted(ALERT_METRICS.items())))
    else:
        out.print_result(answer, lambda: _print_rules(found))


@alerts.command("set-rule")
@RULE
@click.option("--name", help="Name in the alerts of this rule; default: its id.")
@click.option("--condition", metavar="TEXT", help='Such as "error_rate > 0.05 and queue_depth > 1000".')
@click.option("--severity", type=SEVERITIES)
@click.option("--window", type=DurationParam(), help="The window of the condition; default: 5m.")
@click.option("--hold-for", type=DurationParam(), help="How long the condition must hold.")
@click.option("--cooldown", type=DurationParam(), help="Time until the next alert of this rule; default: 5m.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether the rule may raise alerts.")
@click.option("--queue", help="Only the jobs of this queue.")
@click.option("--task", help="Only the jobs of this task.")
@click.option(
    "--per",
    type=click.Choice([scope.value for scope in AlertScope]),
    help="Evaluate the rule for each queue or task.",
)
@with_store(create=True)
def set_rule(session: StoreSession, out: Output, rule_id: str, **options: Any) -> None:
    """Create a rule, or change the given fields of an existing one."""
    given = {name: value for name, value in options.items() if value is not None}
    for field in ("window", "hold_for", "cooldown"):
        if field in given:
            given[field] /= 1_000
    alerts_api = _open_alerts(session)
    try:
        alerts_api.rule(rule_id)
    except AlertRuleNotFound:
        if "condition" not in given:
            raise ConfigError(f"there is no rule {rule_id}; a new one needs --condition") from None
        rule = alerts_api.add_rule(given.pop("name", rule_id), given.pop("condition"), id=rule_id, **given)
    else:
        rule = alerts_api.update_rule(rule_id, **given)
    out.print_message(rule_json(rule), f"rule {rule_id}: {rule.severity} if {rule.condition}")


@alerts.command("remove-rule")
@RULE
@yes_option
@with_store()
def remove_rule(session: StoreSession, out: Output, rule_id: str, yes: bool) -> None:
    """Remove a rule; a built-in rule is reset to its default."""
    alerts_api = _open_alerts(session)
    alerts_api.rule(rule_id)
    confirm(f"Remove rule {rule_id} in {session.name}?", yes=yes)
    was_there = alerts_api.remove_rule(rule_id)
    message = f"rule {rule_id} removed" if was_there else f"rule {rule_id} is reset to its default"
    out.print_message({"rule": rule_id, "removed": was_there}, message)


# Channels


@alerts.command()
@with_store()
def channels(session: StoreSession, out: Output) -> None:
    """List the channels that alerts are sent to, without secrets."""
    found = _open_alerts(session).channels()
    out.print_result(
        {"channels": [channel_json(channel) for channel in found]}, lambda: _print_channels(found)
    )


@alerts.command()
@NAME
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--secret",
    help="The secret that signs calls; - reads it from standard input. env:FOREBAY_SECRET_NAME and file:PATH "
    "are read by the process that delivers.",
)
@MIN_SEVERITY
@with_store(create=True)
def webhook(
    session: StoreSession, out: Output, name: str, address: str, secret: str | None, severity: str
) -> None:
    """Call an address for each alert that is raised or resolved.

    Delivering processes call public addresses, and the networks in their --allow-webhooks-to.
    """
    saved = _open_alerts(session).save_webhook(name, address, secret=_read_secret(secret), severity=severity)
    out.print_message(channel_json(saved), f"channel {name} saved")


@alerts.command()
@NAME
@click.argument("to", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("--from", "sender", required=True, help="Sender of the mails.")
@click.option("--host", required=True, help="The mail server.")
@click.option("--port", type=int, default=587, show_default=True)
@click.option(
    "--tls", type=click.Choice([mode.value for mode in TlsMode]), default="starttls", show_default=True
)
@click.option("--username", default="", help="User name, for a server that requires authentication.")
@click.option(
    "--password",
    help="Password; - reads it from standard input. It may be a reference, as for webhook.",
)
@MIN_SEVERITY
@with_store(create=True)
def email(
    session: StoreSession, out: Output, name: str, to: tuple[str, ...], password: str | None, **options: Any
) -> None:
    """Send a mail for each alert that is raised or resolved."""
    saved = _open_alerts(session).save_email(name, to, password=_read_secret(password), **options)
    out.print_message(channel_json(saved), f"channel {name} saved")


@alerts.command("remove-channel")
@NAME
@with_store()
def remove_channel(session: StoreSession, out: Output, name: str) -> None:
    """Remove a channel."""
    was_there = _open_alerts(session).remove_channel(name)
    message = f"channel {name} removed" if was_there else f"there is no channel {name}"
    out.print_message({"channel": name, "removed": was_there}, message)


# Views


def alert_json(alert: Alert) -> dict[str, Any]:
    """Return an alert with its times as text."""
    fields: dict[str, Any] = msgspec.to_builtins(alert)
    times = {name: iso_instant(fields[name]) for name in ("triggered_at", "acknowledged_at", "resolved_at")}
    return {**fields, **times, "is_active": alert.is_active}


def rule_json(rule: AlertRule) -> dict[str, Any]:
    """Return a rule, and whether it is built in."""
    return {**msgspec.to_builtins(rule), "is_builtin": rule.id in DEFAULT_ALERT_RULES}


def channel_json(channel: Channel) -> dict[str, Any]:
    """Return a channel with its secrets masked."""
    fields: dict[str, Any] = msgspec.to_builtins(channel)
    return fields


def _print_alerts(found: Sequence[Alert]) -> None:
    rows = [
        (alert.id, alert.severity, _state(alert), format_instant(alert.triggered_at), alert.message)
        for alert in found
    ]
    print_table(("id", "severity", "state", "since", "detail"), rows)


def _state(alert: Alert) -> str:
    if not alert.is_active:
        return "resolved"
    return "active" if alert.acknowledged_at is None else "acknowledged"


def _print_rules(found: Sequence[AlertRule]) -> None:
    rows = [
        (
            rule.id,
            rule.severity,
            "" if rule.enabled else "disabled",
            format_duration(rule.window_ms),
            _describe_rule(rule),
        )
        for rule in found
    ]
    print_table(("rule", "severity", "state", "window", "detail"), rows)


def _describe_rule(rule: AlertRule) -> str:
    labels = {"queue": rule.queue, "task": rule.task, "per": rule.per}
    scope = " ".join(f"{name}={value}" for name, value in labels.items() if value is not None)
    return f"{rule.condition} {f'({scope})' if scope else ''}".rstrip()


def _print_channels(found: Sequence[Channel]) -> None:
    rows = [
        (channel.name, channel.severity, "" if channel.enabled else "disabled", _channel_address(channel))
        for channel in found
    ]
    print_table(("channel", "severity", "state", "detail"), rows)


def _channel_address(channel: Channel) -> str:
    return channel.url if isinstance(channel, WebhookChannel) else ", ".join(channel.to)


def _open_alerts(session: StoreSession) -> Alerts:
    return Alerts(session.client, actor=session.actor)


def _read_secret(value: str | None) -> str:
    """Return the value, or the first line of standard input for `-`.

    A command line is visible to other users of the machine.
    """
    return sys.stdin.readline().rstrip("\n") if value == "-" else value or ""
