"""A session of the driver's in which nobody waits without end for a server that says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout

from forebay.stores.shared.rows import Row

T = TypeVar("T")

# For what may take long and has limits of its own, none of which is longer.
LONG_SECONDS: Final = 660.0


class ServerTimeout(psycopg.OperationalError):
    """The server has taken a statement, or the network has, and nothing comes back."""


class Session(psycopg.Connection[Row]):
    """Ends itself where an answer does not come.

    The server's own limits help only while it runs, and those of the network only while nobody at the other
    end takes what is sent. A server that is frozen, or a balancer that has forgotten the connection, keeps
    both from striking. What was asked may have happened, or may yet happen: as with every lost answer.
    """

    answer_timeout: float | None = None  # seconds

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        try:
            return super().wait(gen, *args, **{"timeout": self.answer_timeout, **options})
        except _WaitTimeout as exc:
            # No cancel: whoever does not answer here would not there.
            self.pgconn.finish()
            raise ServerTimeout(f"no answer in {self.answer_timeout:g} s") from exc

    @contextmanager
    def long_timeout(self, seconds: float | None = LONG_SECONDS) -> Iterator[None]:
        """What is asked meanwhile may take long."""
        usual, self.answer_timeout = self.answer_timeout, seconds
        try:
            yield
        finally:
            self.answer_timeout = usual
