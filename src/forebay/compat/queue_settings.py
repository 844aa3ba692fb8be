"""Queue settings of the facades, written when they differ."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from forebay.app.app import Forebay
from forebay.domain.job import QueueName


def configure(app: Forebay, queue: QueueName, wanted: Mapping[str, object]) -> None:
    """Give the queue the settings that the facade promises. Equal settings are not written again."""
    queues = app.client.read(lambda reader: reader.queues([queue]))
    settings = msgspec.to_builtins(queues[0].settings) if queues else {}
    if any(settings.get(name) != value for name, value in wanted.items()):
        app.client.write(lambda store: store.save_queue(queue, wanted, actor=app.client.actor))
