"""Settings of queues: save a queue."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.domain.job import QueueName
from forebay.domain.job_validation import check_queue_name
from forebay.domain.operator_changes import queue_changes
from forebay.domain.queue import Queue, QueueState
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.errors import TRIES, busy_error
from forebay.stores.redis.insert import check_reply
from forebay.stores.redis.rows import queue_from_packed, queue_row, rescored_to_seq_in
from forebay.stores.shared.rows import changes_text


def save_queue(
    connection: Connection,
    name: QueueName,
    changes: Mapping[str, object],
    into: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    for _ in range(TRIES):
        stored = connection.execute("HGET", f"{connection.address.tag}:queues", name)
        old = Queue(name=name) if stored is None else queue_from_packed(name, stored)
        revived_state = QueueState.ACTIVE if old.state is QueueState.DROPPED else None
        queue = old.with_settings(old.settings.with_changes(changes), into or revived_state, 0)
        rescored_to_seq = None if stored is None else rescored_to_seq_in(stored)
        if queue.scoring_version != old.scoring_version:
            rescored_to_seq = 0
        params = {
            "name": name,
            "queue": queue_row(queue, rescored_to_seq),
            "actor": actor,
            "detail": "settings" if into is None else queue.state.value,
            "changes": changes_text(queue_changes(old, queue)) or False,
        }
        reply = connection.run("save_queue", params, stored or b"")
        if reply[0] != b"retry":
            return queue_from_packed(name, check_reply(reply)[0])
    raise busy_error(connection.address.location, f"queue {name}")
