"""How messages of Huey are to be read, wherever they lie."""

from __future__ import annotations

from secrets import token_hex
from typing import Final, NamedTuple

from forebay.integrations.importers.huey_message import read_message
from forebay.integrations.importers.source import ForeignJob, SkippedJob

REVOKED: Final = "it was revoked, or its task was: nothing would run it"


class HueyReadOptions(NamedTuple):
    """How messages are to be read."""

    only: tuple[str, ...] = ()
    trust_pickle: bool = False
    local_time: bool = False

    def parse(self, data: bytes, queue: str) -> ForeignJob | SkippedJob:
        return read_message(data, queue, trust_pickle=self.trust_pickle, local_time=self.local_time)


def revocation_keys(job: ForeignJob) -> tuple[str, str]:
    """The keys under which Huey notes that it, or its task, shall not run."""
    return f"r:{job.id}", f"rt:{job.task}"


def new_token() -> str:
    """What tells one message of a key from another that comes later."""
    return token_hex(8)


def make_revoked(job: ForeignJob) -> SkippedJob:
    return SkippedJob(id=job.id, task=job.task, queue=job.queue, reason=REVOKED)
