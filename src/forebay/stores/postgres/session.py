"""Driver session with a response timeout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout

from forebay.stores.shared.rows import Row

T = TypeVar("T")

# For statements that may take long and have timeouts of their own, none of which is longer.
LONG_SECONDS: Final = 660.0


class ServerTimeout(psycopg.OperationalError):
    """No response to a statement that was sent within the timeout."""


class Session(psycopg.Connection[Row]):
    """Session that closes itself when a response does not come in time.

    Timeouts of the server help only while it runs, and those of TCP only while the other end acknowledges
    nothing. A frozen server, or a load balancer that has dropped the connection, defeats both. The statement
    may have happened, or may yet happen: as with every lost response.
    """

    answer_timeout: float | None = None  # seconds

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        try:
            return super().wait(gen, *args, **{"timeout": self.answer_timeout, **options})
        except _WaitTimeout as exc:
            # No cancel request: a server that does not respond here would not respond to that.
            self.pgconn.finish()
            raise ServerTimeout(f"no answer in {self.answer_timeout:g} s") from exc

    @contextmanager
    def long_timeout(self, seconds: float | None = LONG_SECONDS) -> Iterator[None]:
        """Allow statements to take long while the block runs."""
        usual, self.answer_timeout = self.answer_timeout, seconds
        try:
            yield
        finally:
            self.answer_timeout = usual
