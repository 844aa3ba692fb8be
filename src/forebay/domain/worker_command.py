"""Commands to workers: they go through the store and expire."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.storable_text import clean_text, truncate_bytes

COMMAND_EXPIRES_MS: Final = 30_000
COMMAND_RETENTION_MS: Final = 3_600_000
MAX_RESPONSE: Final = 65_536


class CommandKind(StrEnum):
    """Kind of a command to a worker through the store."""

    PAUSE = "pause"  # claim nothing more, of one queue or of all
    RESUME = "resume"
    STOP = "stop"  # as after SIGTERM: running jobs may end within the worker's drain timeout
    DRAIN = "drain"  # stop when all running jobs have ended, however long that takes
    HALT = "halt"  # stop at once: running jobs are interrupted and handed back
    STACKS = "stacks"  # answer with the stacks of all threads


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Command to a worker. It is delivered once, until `expires_at`; `response` is the worker's."""

    id: str
    worker: WorkerId
    kind: CommandKind
    queue: QueueName | None = None
    actor: str = ""
    sent_at: int = 0
    expires_at: int = 0
    delivered_at: int | None = None
    response: str | None = None


def truncate_answer(text: str) -> str:
    """Return the response to a command as a store keeps it."""
    return truncate_bytes(clean_text(text), MAX_RESPONSE)
