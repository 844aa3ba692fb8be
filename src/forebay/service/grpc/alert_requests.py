"""What methods about alerts are asked with."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forebay.domain.alert import Severity
from forebay.domain.query import MAX_PAGE
from forebay.service.schema.alerts import (
    CHANNEL_NAME,
    RULE_ID,
    ChannelRequest,
    NewRuleRequest,
    RuleRequest,
    TriggerRequest,
)
from forebay.service.schema.base import RequestModel

RuleId = Annotated[str, Meta(pattern=RULE_ID)]
ChannelName = Annotated[str, Meta(pattern=CHANNEL_NAME)]
AlertId = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$")]


class ListAlertsRequest(RequestModel, frozen=True, kw_only=True):
    """List alerts, newest first: those that nobody has acknowledged, unless something else is asked for."""

    severity: Severity | None = None
    acknowledged: bool = False
    all: bool = False
    active: bool | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50


class TriggerAlertRequest(TriggerRequest, frozen=True, kw_only=True):
    """Raise an alert by hand; it is active until somebody resolves it."""


class AcknowledgeAlertRequest(RequestModel, frozen=True, kw_only=True):
    """Say that somebody has seen an alert."""

    id: AlertId


class ResolveAlertRequest(RequestModel, frozen=True, kw_only=True):
    """Say that an alert is over; if its condition still holds it comes again after the cooldown."""

    id: AlertId


class ListAlertRulesRequest(RequestModel, frozen=True, kw_only=True):
    """List the rules of alerts, and the metrics that they can ask for."""


class CreateAlertRuleRequest(NewRuleRequest, frozen=True, kw_only=True):
    """Make a rule of alerts."""


class SaveAlertRuleRequest(RuleRequest, frozen=True, kw_only=True):
    """Make a rule of alerts, or say what the one of this id is from now on."""

    id: RuleId


class RemoveAlertRuleRequest(RequestModel, frozen=True, kw_only=True):
    """Remove a rule of alerts; one that is always there is as it was at first."""

    id: RuleId


class ListAlertChannelsRequest(RequestModel, frozen=True, kw_only=True):
    """List who is told of alerts, without secrets."""


class SaveAlertChannelRequest(ChannelRequest, frozen=True, kw_only=True):
    """Say who is told of alerts, and how."""

    name: ChannelName


class RemoveAlertChannelRequest(RequestModel, frozen=True, kw_only=True):
    """Tell nobody by a channel any more."""

    name: ChannelName
