"""New job ids: ULIDs made from a UUIDv7's bits, strictly increasing within a process."""

from __future__ import annotations

from threading import Lock

import uuid_utils

from forebay.domain.job import JobId
from forebay.domain.ulid import encode_ulid


class IdMaker:
    """Makes ids that sort by the time they were made, and never the same one twice."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0

    def __call__(self) -> JobId:
        with self._lock:
            # The clock may be set back; the order of ids must not follow it.
            bits = max(uuid_utils.uuid7().int, self._last + 1)
            self._last = bits
        return JobId(encode_ulid(bits))


# One for the process: two engines side by side must not hand out ids that interleave.
new_id = IdMaker()
