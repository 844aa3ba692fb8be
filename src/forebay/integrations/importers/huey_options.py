"""Options for reading messages of Huey, for both sources."""

from __future__ import annotations

from secrets import token_hex
from typing import NamedTuple

from forebay.integrations.importers.huey_message import read_message
from forebay.integrations.importers.source import ForeignJob, SkippedJob


class HueyReadOptions(NamedTuple):
    """Options for reading messages."""

    only: tuple[str, ...] = ()
    trust_pickle: bool = False
    local_time: bool = False

    def parse(self, data: bytes, queue: str) -> ForeignJob | SkippedJob:
        return read_message(data, queue, trust_pickle=self.trust_pickle, local_time=self.local_time)


def new_token() -> str:
    """Return a token that tells one message of a key from a later one."""
    return token_hex(8)
