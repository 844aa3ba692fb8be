"""Read options of Huey's messages, for both sources."""

from __future__ import annotations

from secrets import token_hex
from typing import Final, NamedTuple

from forebay.integrations.importers.huey_message import read_message
from forebay.integrations.importers.source import ForeignJob, SkippedJob

REVOKED: Final = "it was revoked, or its task was: nothing would run it"


class HueyReadOptions(NamedTuple):
    """Options for reading messages."""

    only: tuple[str, ...] = ()
    trust_pickle: bool = False
    local_time: bool = False

    def parse(self, data: bytes, queue: str) -> ForeignJob | SkippedJob:
        return read_message(data, queue, trust_pickle=self.trust_pickle, local_time=self.local_time)


def revocation_keys(job: ForeignJob) -> tuple[str, str]:
    """Return the keys under which Huey records that a task, or all of its kind, must not run."""
    return f"r:{job.id}", f"rt:{job.task}"


def new_token() -> str:
    """Return a token that tells one message of a key from a later one."""
    return token_hex(8)


def make_revoked(job: ForeignJob) -> SkippedJob:
    return SkippedJob(id=job.id, task=job.task, queue=job.queue, reason=REVOKED)
