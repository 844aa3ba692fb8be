"""Delivery of the alert notifications that are due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from forebay.app.consumer import Consumer
from forebay.domain.job import ALERT_QUEUE, ALERT_TASK, Job
from forebay.errors import StoreError
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader

if TYPE_CHECKING:
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy

logger: logging.Logger = logging.getLogger(__name__)

# Longer than any delivery takes: a delivery under way is not claimed a second time.
LEASE_SECONDS: Final = 120.0
# Time for a process with the key of a channel to take a delivery that this one cannot send.
LOCKED_SECONDS: Final = 30.0


def deliver_due(
    engine: Engine, is_over: Callable[[], bool] = lambda: False, policy: DeliveryPolicy | None = None
) -> int:
    """Deliver all that is due, one after the other, until `is_over`; return how many were tried. A delivery
    that fails is a failed job: it is tried again later, and in the end it is a dead letter."""
    tried = 0
    try:
        with closing(Consumer(engine)) as consumer, closing(engine.reader()) as reader:
            while not is_over() and (jobs := consumer.claim(1, queue=ALERT_QUEUE, lease=LEASE_SECONDS)):
                for job in jobs:
                    tried += 1
                    _deliver_one(consumer, reader, job, policy)
    except StoreError as exc:
        # The sweeper finds the claimed ones, and they are delivered again.
        logger.warning("alert notifications are delivered later: %s", exc)
    return tried


def _deliver_one(consumer: Consumer, reader: Reader, job: Job, policy: DeliveryPolicy | None) -> None:
    from forebay.operations.alerts.webhook_and_mail_delivery import ChannelLocked, deliver  # noqa: PLC0415 - most workers need no TLS or mail

    if job.task != ALERT_TASK:
        consumer.discard(job, f"it is no delivery, and {ALERT_QUEUE} is for deliveries alone")
        return
    error = deliver(reader, job, policy=policy)
    if error is None:
        consumer.complete(job)
    elif isinstance(error, ChannelLocked):
        logger.warning("%s; the delivery waits for one that has it", error)
        consumer.snooze(job, LOCKED_SECONDS)
    else:
        consumer.fail(job, error)
