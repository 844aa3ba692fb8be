"""Request messages of the methods for alerts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forebay.domain.alert import Severity
from forebay.domain.job_query import MAX_PAGE
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
    """List alerts, newest first; by default those that are not acknowledged."""

    severity: Severity | None = None
    acknowledged: bool = False
    all: bool = False
    active: bool | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 50


class TriggerAlertRequest(TriggerRequest, frozen=True, kw_only=True):
    """Raise an alert by hand; it is active until it is resolved."""


class AcknowledgeAlertRequest(RequestModel, frozen=True, kw_only=True):
    """Acknowledge an alert."""

    id: AlertId


class ResolveAlertRequest(RequestModel, frozen=True, kw_only=True):
    """Resolve an alert; it is raised again after the cooldown if its condition still holds."""

    id: AlertId


class ListAlertRulesRequest(RequestModel, frozen=True, kw_only=True):
    """List alert rules, and the metrics that they may use."""


class CreateAlertRuleRequest(NewRuleRequest, frozen=True, kw_only=True):
    """Create an alert rule."""


class SaveAlertRuleRequest(RuleRequest, frozen=True, kw_only=True):
    """Create or replace an alert rule."""

    id: RuleId


class RemoveAlertRuleRequest(RequestModel, frozen=True, kw_only=True):
    """Remove an alert rule; a built-in one is reset to its default."""

    id: RuleId


class ListAlertChannelsRequest(RequestModel, frozen=True, kw_only=True):
    """List alert channels, without their secrets."""


class SaveAlertChannelRequest(ChannelRequest, frozen=True, kw_only=True):
    """Create or replace an alert channel."""

    name: ChannelName


class RemoveAlertChannelRequest(RequestModel, frozen=True, kw_only=True):
    """Remove an alert channel."""

    name: ChannelName
