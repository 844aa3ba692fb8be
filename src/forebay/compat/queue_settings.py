"""What both facades need of a queue: its settings, written when they differ."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from forebay.app.app import Forebay
from forebay.domain.job import QueueName


def configure(app: Forebay, queue: QueueName, wanted: Mapping[str, object]) -> None:
    """Make the queue what the facade promises. A start that changes nothing writes nothing."""
    found = app.client.read(lambda reader: reader.queues([queue]))
    settings = msgspec.to_builtins(found[0].settings) if found else {}
    if any(settings.get(name) != value for name, value in wanted.items()):
        app.client.write(lambda store: store.save_queue(queue, wanted, actor=app.client.actor))
