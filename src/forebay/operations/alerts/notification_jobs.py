"""Notification jobs: one for each alert and each channel that its severity reaches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from forebay.domain.alert import (
    Alert,
    AlertTransition,
)
from forebay.domain.alert_channel import Channel
from forebay.domain.job import ALERT_QUEUE, ALERT_TASK, NewJob
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import ForebayError, StoreError
from forebay.operations.alerts.stored_rules_alerts_and_channels import (
    CHANNELS,
)
from forebay.payload.codec import encode_call
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

logger: logging.Logger = logging.getLogger(__name__)

# Ten retries take some three hours.
_DELIVERY_POLICY: Final = RetryPolicy(max_retries=10, base_ms=10_000, ceiling_ms=3_600_000)


def enqueue_notifications(
    store: Store, reader: Reader, alerts: Sequence[tuple[AlertTransition, Alert]]
) -> bool:
    """Enqueue a delivery of each alert to each channel of its severity; return whether there are any."""
    records = CHANNELS.all(reader).values() if alerts else ()
    channels = [record.value for record in records if record.value.enabled]
    jobs = [
        make_delivery_job(alert, step, channel)
        for step, alert in alerts
        for channel in channels
        if alert.severity.reaches(channel.severity)
    ]
    try:
        if jobs:
            store.insert(jobs)
    except StoreError:
        raise
    except ForebayError as exc:
        # The queue of deliveries was closed, or made too small; the alerts are stored all the same.
        logger.warning("alert notifications are not delivered: %s", exc)
        return False
    return bool(jobs)


def make_delivery_job(alert: Alert, step: AlertTransition, channel: Channel) -> NewJob:
    """Build the job that delivers an alert to a channel.

    Its data are metadata and not arguments: these may be encrypted with a key that the delivering process
    lacks. It contains no secret.
    """
    return NewJob(
        task=ALERT_TASK,
        payload=encode_call((), {}),
        queue=ALERT_QUEUE,
        policy=_DELIVERY_POLICY,
        idempotency_key=f"{alert.id} {step} {channel.name}",
        metadata={"alert": alert.id, "step": step.value, "channel": channel.name},
    )
