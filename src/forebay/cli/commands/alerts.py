"""`forebay alerts`: what is wrong, which rules say so, and who is told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from forebay.app.alerts import Alerts
from forebay.cli.commands.workers import DefaultListGroup
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
SEVERITIES = click.Choice([one.value for one in Severity], case_sensitive=False)
MIN_SEVERITY = click.option(
    "--severity", type=SEVERITIES, default="info", show_default=True, help="Alerts of at least this severity."
)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: `forebay alerts`, `forebay alerts ack 01KXY...`, "
    "`forebay alerts set-rule deep --condition 'queue_depth > 100' --queue mail`.",
)
def alerts() -> None:
    """List alerts, acknowledge them, and say when there are some.

    Workers and servers look at the rules every ten seconds. Without a command the alerts are listed.
    """


@alerts.command("list")
@click.option("--severity", type=SEVERITIES, help="Of this severity.")
@click.option("--active", is_flag=True, help="Without those that are over.")
@click.option("--unacknowledged", is_flag=True, help="Without those that somebody has acknowledged.")
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
    out.print_result({"alerts": [alert_json(one) for one in found]}, lambda: _print_alerts(found))


@alerts.command()
@ID
@with_store()
def ack(session: StoreSession, out: Output, alert_id: str) -> None:
    """Say that you have seen an alert."""
    alert = _open_alerts(session).acknowledge(alert_id)
    out.print_message(alert_json(alert), f"alert {alert_id} acknowledged by {alert.acknowledged_by}")


@alerts.command()
@ID
@with_store()
def resolve(session: StoreSession, out: Output, alert_id: str) -> None:
    """Say that an alert is over. If its condition still holds it comes again after the cooldown."""
    out.print_message(alert_json(_open_alerts(session).resolve(alert_id)), f"alert {alert_id} resolved")


@alerts.command()
@click.argument("kind", metavar="KIND")
@click.argument("message", metavar="MESSAGE")
@click.option("--severity", type=SEVERITIES, default="warning", show_default=True)
@click.option("--details", metavar="JSON", default="{}", help="What else should be known.")
@with_store()
def trigger(session: StoreSession, out: Output, kind: str, message: str, severity: str, details: str) -> None:
    """Raise an alert by hand; it is active until somebody resolves it."""
    try:
        told = msgspec.json.decode(details, type=dict[str, Any])
    except ValueError as exc:
        raise ConfigError(f"--details must be an object in JSON: {exc}") from exc
    alert = _open_alerts(session).trigger(kind, message, severity=severity, details=told)
    out.print_message(alert_json(alert), f"alert {alert.id} raised")


@alerts.command()
@with_store()
def check(session: StoreSession, out: Output) -> None:
    """Look at all rules now, as workers and servers do every ten seconds."""
    found = _open_alerts(session).evaluate().notices
    news = [{"id": one.alert_id, "event": one.step.value} for one in found]
    out.print_message({"alerts": news}, f"{len(news)} alerts were raised or resolved")


# Rules


@alerts.command()
@click.option("--metrics", is_flag=True, help="Say which metrics conditions can ask for.")
@with_store()
def rules(session: StoreSession, out: Output, metrics: bool) -> None:
    """List the rules of alerts."""
    found = _open_alerts(session).rules()
    answer = {"rules": [rule_json(one) for one in found], "metrics": ALERT_METRICS}
    if metrics:
        out.print_result(answer, lambda: print_table(("metric", "what it is"), sorted(ALERT_METRICS.items())))
    else:
        out.print_result(answer, lambda: _print_rules(found))


@alerts.command("set-rule")
@RULE
@click.option("--name", help="What alerts of this rule are called; its id without it.")
@click.option("--condition", metavar="TEXT", help='Such as "error_rate > 0.05 and queue_depth > 1000".')
@click.option("--severity", type=SEVERITIES)
@click.option("--window", type=DurationParam(), help="The time that the condition is about; 5m without it.")
@click.option("--hold-for", type=DurationParam(), help="How long the condition has to hold.")
@click.option("--cooldown", type=DurationParam(), help="No other alert for so long; 5m without it.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may fire.")
@click.option("--queue", help="About the jobs of this queue alone.")
@click.option("--task", help="About the jobs of this task alone.")
@click.option(
    "--per", type=click.Choice([one.value for one in AlertScope]), help="An alert for each of them."
)
@with_store(create=True)
def set_rule(session: StoreSession, out: Output, rule_id: str, **options: Any) -> None:
    """Make a rule, or change what is given of the one there is."""
    given = {name: value for name, value in options.items() if value is not None}
    for field in ("window", "hold_for", "cooldown"):
        if field in given:
            given[field] /= 1_000
    kept = _open_alerts(session)
    try:
        kept.rule(rule_id)
    except AlertRuleNotFound:
        if "condition" not in given:
            raise ConfigError(f"there is no rule {rule_id}; a new one needs --condition") from None
        rule = kept.add_rule(given.pop("name", rule_id), given.pop("condition"), id=rule_id, **given)
    else:
        rule = kept.update_rule(rule_id, **given)
    out.print_message(rule_json(rule), f"rule {rule_id}: {rule.severity} if {rule.condition}")


@alerts.command("remove-rule")
@RULE
@yes_option
@with_store()
def remove_rule(session: StoreSession, out: Output, rule_id: str, yes: bool) -> None:
    """Remove a rule; one that is always there is as it was at first."""
    kept = _open_alerts(session)
    kept.rule(rule_id)
    confirm(f"Remove rule {rule_id} in {session.name}?", yes=yes)
    was_there = kept.remove_rule(rule_id)
    said = f"rule {rule_id} removed" if was_there else f"rule {rule_id} is as it was at first"
    out.print_message({"rule": rule_id, "removed": was_there}, said)


# Channels


@alerts.command()
@with_store()
def channels(session: StoreSession, out: Output) -> None:
    """List who is told of alerts, without secrets."""
    found = _open_alerts(session).channels()
    out.print_result({"channels": [channel_json(one) for one in found]}, lambda: _print_channels(found))


@alerts.command()
@NAME
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--secret",
    help="What calls are signed with; - reads it from standard input. env:FOREBAY_SECRET_NAME and file:PATH "
    "are read by the process that delivers.",
)
@MIN_SEVERITY
@with_store(create=True)
def webhook(
    session: StoreSession, out: Output, name: str, address: str, secret: str | None, severity: str
) -> None:
    """Have an address called for each alert that is raised or resolved.

    Processes that deliver call public addresses, and those that their --allow-webhooks-to names.
    """
    saved = _open_alerts(session).save_webhook(name, address, secret=_read_secret(secret), severity=severity)
    out.print_message(channel_json(saved), f"channel {name} saved")


@alerts.command()
@NAME
@click.argument("to", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("--from", "sender", required=True, help="Who the mails are from.")
@click.option("--host", required=True, help="The mail server.")
@click.option("--port", type=int, default=587, show_default=True)
@click.option(
    "--tls", type=click.Choice([one.value for one in TlsMode]), default="starttls", show_default=True
)
@click.option("--username", default="", help="For a server that wants to know who sends.")
@click.option(
    "--password",
    help="The same; - reads it from standard input. It may be a reference, as for webhook.",
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
    """Tell nobody by a channel any more."""
    was_there = _open_alerts(session).remove_channel(name)
    said = f"channel {name} removed" if was_there else f"there is no channel {name}"
    out.print_message({"channel": name, "removed": was_there}, said)


# Shapes


def alert_json(alert: Alert) -> dict[str, Any]:
    """An alert with its times as texts."""
    fields: dict[str, Any] = msgspec.to_builtins(alert)
    times = {name: iso_instant(fields[name]) for name in ("triggered_at", "acknowledged_at", "resolved_at")}
    return {**fields, **times, "is_active": alert.is_active}


def rule_json(rule: AlertRule) -> dict[str, Any]:
    """A rule, and whether it is one of those that are always there."""
    return {**msgspec.to_builtins(rule), "is_builtin": rule.id in DEFAULT_ALERT_RULES}


def channel_json(channel: Channel) -> dict[str, Any]:
    """A channel that is shown: its secrets are masked."""
    fields: dict[str, Any] = msgspec.to_builtins(channel)
    return fields


def _print_alerts(found: Sequence[Alert]) -> None:
    rows = [
        (one.id, one.severity, _state(one), format_instant(one.triggered_at), one.message) for one in found
    ]
    print_table(("id", "severity", "state", "since", "detail"), rows)


def _state(alert: Alert) -> str:
    if not alert.is_active:
        return "resolved"
    return "active" if alert.acknowledged_at is None else "acknowledged"


def _print_rules(found: Sequence[AlertRule]) -> None:
    rows = [
        (
            one.id,
            one.severity,
            "" if one.enabled else "disabled",
            format_duration(one.window_ms),
            _describe_rule(one),
        )
        for one in found
    ]
    print_table(("rule", "severity", "state", "window", "detail"), rows)


def _describe_rule(rule: AlertRule) -> str:
    labels = {"queue": rule.queue, "task": rule.task, "per": rule.per}
    told = " ".join(f"{name}={value}" for name, value in labels.items() if value is not None)
    return f"{rule.condition} {f'({told})' if told else ''}".rstrip()


def _print_channels(found: Sequence[Channel]) -> None:
    rows = [
        (one.name, one.severity, "" if one.enabled else "disabled", _channel_address(one)) for one in found
    ]
    print_table(("channel", "severity", "state", "detail"), rows)


def _channel_address(channel: Channel) -> str:
    return channel.url if isinstance(channel, WebhookChannel) else ", ".join(channel.to)


def _open_alerts(session: StoreSession) -> Alerts:
    return Alerts(session.client, actor=session.actor)


def _read_secret(value: str | None) -> str:
    """What was given, or what stands on standard input: a command line can be seen by others."""
    return sys.stdin.readline().rstrip("\n") if value == "-" else value or ""
