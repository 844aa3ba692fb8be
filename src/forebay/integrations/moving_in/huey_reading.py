"""How messages of Huey are to be read, wherever they lie."""

from __future__ import annotations

from secrets import token_hex
from typing import Final, NamedTuple

from forebay.integrations.moving_in.found import Left, Waiting
from forebay.integrations.moving_in.huey import read_message

REVOKED: Final = "it was revoked, or its task was: nothing would run it"


class Reading(NamedTuple):
    """How messages are to be read."""

    only: tuple[str, ...] = ()
    trust_pickle: bool = False
    local_time: bool = False

    def message(self, data: bytes, queue: str) -> Waiting | Left:
        return read_message(data, queue, trust_pickle=self.trust_pickle, local_time=self.local_time)


def revocations(what: Waiting) -> tuple[str, str]:
    """The keys under which Huey notes that it, or its task, shall not run."""
    return f"r:{what.id}", f"rt:{what.task}"


def new_word() -> str:
    """What tells one message of a key from another that comes later."""
    return token_hex(8)


def left_revoked(what: Waiting) -> Left:
    return Left(id=what.id, task=what.task, queue=what.queue, reason=REVOKED)
