"""`forebay alerts`: what is wrong, which rules say so, and who is told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from forebay.app.alerts import Alerts
from forebay.cli.opening import Desk
from forebay.cli.options import Length, at_store, limit_option, yes_option
from forebay.cli.output import Output, confirm, length, moment, table
from forebay.cli.shapes import iso
from forebay.cli.workers import ListByDefault
from forebay.domain.alert import KNOWN, Alert, Each, Rule, Severity
from forebay.domain.channel import Channel, Tls, Webhook
from forebay.domain.usual_rules import USUAL_RULES
from forebay.errors import ConfigError, RuleNotFound

ID = click.argument("alert_id", metavar="ID")
RULE = click.argument("rule_id", metavar="RULE")
NAME = click.argument("name", metavar="NAME")
SEVERITIES = click.Choice([one.value for one in Severity], case_sensitive=False)
LEAST = click.option(
    "--severity", type=SEVERITIES, default="info", show_default=True, help="Alerts of at least this severity."
)


@click.group(
    cls=ListByDefault,
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
@at_store()
def list_alerts(
    desk: Desk, out: Output, severity: str | None, active: bool, unacknowledged: bool, limit: int
) -> None:
    """List alerts, newest first. This is what `forebay alerts` alone does."""
    found = _alerts(desk).list(
        severity=severity,
        active=True if active else None,
        acknowledged=False if unacknowledged else None,
        limit=min(limit, 1_000),
    )
    out.answer({"alerts": [alert_json(one) for one in found]}, lambda: _table(found))


@alerts.command()
@ID
@at_store()
def ack(desk: Desk, out: Output, alert_id: str) -> None:
    """Say that you have seen an alert."""
    alert = _alerts(desk).acknowledge(alert_id)
    out.say(alert_json(alert), f"alert {alert_id} acknowledged by {alert.acknowledged_by}")


@alerts.command()
@ID
@at_store()
def resolve(desk: Desk, out: Output, alert_id: str) -> None:
    """Say that an alert is over. If its condition still holds it comes again after the cooldown."""
    out.say(alert_json(_alerts(desk).resolve(alert_id)), f"alert {alert_id} resolved")


@alerts.command()
@click.argument("kind", metavar="KIND")
@click.argument("message", metavar="MESSAGE")
@click.option("--severity", type=SEVERITIES, default="warning", show_default=True)
@click.option("--details", metavar="JSON", default="{}", help="What else should be known.")
@at_store()
def trigger(desk: Desk, out: Output, kind: str, message: str, severity: str, details: str) -> None:
    """Raise an alert by hand; it is active until somebody resolves it."""
    try:
        told = msgspec.json.decode(details, type=dict[str, Any])
    except ValueError as exc:
        raise ConfigError(f"--details must be an object in JSON: {exc}") from exc
    alert = _alerts(desk).trigger(kind, message, severity=severity, details=told)
    out.say(alert_json(alert), f"alert {alert.id} raised")


@alerts.command()
@at_store()
def check(desk: Desk, out: Output) -> None:
    """Look at all rules now, as workers and servers do every ten seconds."""
    found = _alerts(desk).evaluate().notices
    news = [{"id": one.alert_id, "event": one.step.value} for one in found]
    out.say({"alerts": news}, f"{len(news)} alerts were raised or resolved")


# Rules


@alerts.command()
@click.option("--metrics", is_flag=True, help="Say which metrics conditions can ask for.")
@at_store()
def rules(desk: Desk, out: Output, metrics: bool) -> None:
    """List the rules of alerts."""
    found = _alerts(desk).rules()
    answer = {"rules": [rule_json(one) for one in found], "metrics": KNOWN}
    if metrics:
        out.answer(answer, lambda: table(("metric", "what it is"), sorted(KNOWN.items())))
    else:
        out.answer(answer, lambda: _rule_table(found))


@alerts.command("set-rule")
@RULE
@click.option("--name", help="What alerts of this rule are called; its id without it.")
@click.option("--condition", metavar="TEXT", help='Such as "error_rate > 0.05 and queue_depth > 1000".')
@click.option("--severity", type=SEVERITIES)
@click.option("--window", type=Length(), help="The time that the condition is about; 5m without it.")
@click.option("--hold", type=Length(), help="How long the condition has to hold.")
@click.option("--cooldown", type=Length(), help="No other alert for so long; 5m without it.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may fire.")
@click.option("--queue", help="About the jobs of this queue alone.")
@click.option("--task", help="About the jobs of this task alone.")
@click.option("--each", type=click.Choice([one.value for one in Each]), help="An alert for each of them.")
@at_store(create=True)
def set_rule(desk: Desk, out: Output, rule_id: str, **options: Any) -> None:
    """Make a rule, or change what is given of the one there is."""
    given = {name: value for name, value in options.items() if value is not None}
    for field in ("window", "hold", "cooldown"):
        if field in given:
            given[field] /= 1_000
    kept = _alerts(desk)
    try:
        kept.rule(rule_id)
    except RuleNotFound:
        if "condition" not in given:
            raise ConfigError(f"there is no rule {rule_id}; a new one needs --condition") from None
        rule = kept.add_rule(given.pop("name", rule_id), given.pop("condition"), id=rule_id, **given)
    else:
        rule = kept.change_rule(rule_id, **given)
    out.say(rule_json(rule), f"rule {rule_id}: {rule.severity} if {rule.condition}")


@alerts.command("remove-rule")
@RULE
@yes_option
@at_store()
def remove_rule(desk: Desk, out: Output, rule_id: str, yes: bool) -> None:
    """Remove a rule; one that is always there is as it was at first."""
    kept = _alerts(desk)
    kept.rule(rule_id)
    confirm(f"Remove rule {rule_id} in {desk.name}?", yes=yes)
    was_there = kept.remove_rule(rule_id)
    said = f"rule {rule_id} removed" if was_there else f"rule {rule_id} is as it was at first"
    out.say({"rule": rule_id, "removed": was_there}, said)


# Channels


@alerts.command()
@at_store()
def channels(desk: Desk, out: Output) -> None:
    """List who is told of alerts, without secrets."""
    found = _alerts(desk).channels()
    out.answer({"channels": [channel_json(one) for one in found]}, lambda: _channel_table(found))


@alerts.command()
@NAME
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--secret",
    help="What calls are signed with; - reads it from standard input. env:FOREBAY_SECRET_NAME and file:PATH "
    "are read by the process that delivers.",
)
@LEAST
@at_store(create=True)
def webhook(desk: Desk, out: Output, name: str, address: str, secret: str | None, severity: str) -> None:
    """Have an address called for each alert that is raised or resolved.

    Processes that deliver call public addresses, and those that their --allow-webhooks-to names.
    """
    saved = _alerts(desk).save_webhook(name, address, secret=_read(secret), severity=severity)
    out.say(channel_json(saved), f"channel {name} saved")


@alerts.command()
@NAME
@click.argument("to", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("--from", "sender", required=True, help="Who the mails are from.")
@click.option("--host", required=True, help="The mail server.")
@click.option("--port", type=int, default=587, show_default=True)
@click.option("--tls", type=click.Choice([one.value for one in Tls]), default="starttls", show_default=True)
@click.option("--username", default="", help="For a server that wants to know who sends.")
@click.option(
    "--password",
    help="The same; - reads it from standard input. It may be a reference, as for webhook.",
)
@LEAST
@at_store(create=True)
def email(
    desk: Desk, out: Output, name: str, to: tuple[str, ...], password: str | None, **options: Any
) -> None:
    """Send a mail for each alert that is raised or resolved."""
    saved = _alerts(desk).save_email(name, to, password=_read(password), **options)
    out.say(channel_json(saved), f"channel {name} saved")


@alerts.command("remove-channel")
@NAME
@at_store()
def remove_channel(desk: Desk, out: Output, name: str) -> None:
    """Tell nobody by a channel any more."""
    was_there = _alerts(desk).remove_channel(name)
    said = f"channel {name} removed" if was_there else f"there is no channel {name}"
    out.say({"channel": name, "removed": was_there}, said)


# Shapes


def alert_json(alert: Alert) -> dict[str, Any]:
    """An alert with its times as texts."""
    fields: dict[str, Any] = msgspec.to_builtins(alert)
    times = {name: iso(fields[name]) for name in ("triggered_at", "acknowledged_at", "resolved_at")}
    return {**fields, **times, "is_active": alert.is_active}


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule, and whether it is one of those that are always there."""
    return {**msgspec.to_builtins(rule), "is_usual": rule.id in USUAL_RULES}


def channel_json(channel: Channel) -> dict[str, Any]:
    """A channel that is shown: its secrets are masked."""
    fields: dict[str, Any] = msgspec.to_builtins(channel)
    return fields


def _table(found: Sequence[Alert]) -> None:
    rows = [(one.id, one.severity, _state(one), moment(one.triggered_at), one.message) for one in found]
    table(("id", "severity", "state", "since", "detail"), rows)


def _state(alert: Alert) -> str:
    if not alert.is_active:
        return "resolved"
    return "active" if alert.acknowledged_at is None else "acknowledged"


def _rule_table(found: Sequence[Rule]) -> None:
    rows = [
        (one.id, one.severity, "" if one.enabled else "disabled", length(one.window_ms), _about(one))
        for one in found
    ]
    table(("rule", "severity", "state", "window", "detail"), rows)


def _about(rule: Rule) -> str:
    labels = {"queue": rule.queue, "task": rule.task, "each": rule.each}
    told = " ".join(f"{name}={value}" for name, value in labels.items() if value is not None)
    return f"{rule.condition} {f'({told})' if told else ''}".rstrip()


def _channel_table(found: Sequence[Channel]) -> None:
    rows = [(one.name, one.severity, "" if one.enabled else "disabled", _place(one)) for one in found]
    table(("channel", "severity", "state", "detail"), rows)


def _place(channel: Channel) -> str:
    return channel.url if isinstance(channel, Webhook) else ", ".join(channel.to)


def _alerts(desk: Desk) -> Alerts:
    return Alerts(desk.client, actor=desk.actor)


def _read(given: str | None) -> str:
    """What was given, or what stands on standard input: a command line can be seen by others."""
    return sys.stdin.readline().rstrip("\n") if given == "-" else given or ""
