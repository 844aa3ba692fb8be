"""Statements that are called by hand: prepared once, with values that are packed here.

The driver finds out at every call which kinds of values it was given. For a single job that takes longer than
the server needs to insert it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from forebay.stores.postgres.connection import Raw
from forebay.stores.postgres.dollars import dollars
from forebay.stores.postgres.packing import Packed
from forebay.stores.rows import Row

_whole: Final = Struct("!q").unpack


class Call:
    """One statement that is a transaction by itself."""

    def __init__(self, name: str, statement: bytes) -> None:
        text, self._names = dollars(statement)
        self._name = f"forebay_{name}".encode()
        self._text = text.encode()
        self._formats = [Format.BINARY] * len(self._names)
        self._prepared_on: Raw | None = None

    def __call__(self, raw: Raw, values: Mapping[str, Packed]) -> int | None:
        """The number that it answers with; None if there is no row."""
        answer = self._called(raw, values)
        value = answer.get_value(0, 0) if answer.ntuples else None
        return None if value is None else int(_whole(value)[0])

    def rows(self, raw: Raw, values: Mapping[str, Packed]) -> list[Row]:
        """All that it answers with."""
        answer, loads = self._called(raw, values), Transformer(raw)
        loads.set_pgresult(answer)
        return loads.load_rows(0, answer.ntuples, tuple)

    def _called(self, raw: Raw, values: Mapping[str, Packed]) -> PGresult:
        packed = [values[name] for name in self._names]
        if raw is self._prepared_on:
            try:
                return self._sent(raw, packed)
            except errors.InvalidSqlStatementName:
                pass  # after a rollback the driver lets go of all statements, not only of its own
        raw.pgconn.send_prepare(self._name, self._text)
        self._answer(raw)
        self._prepared_on = raw
        return self._sent(raw, packed)

    def _sent(self, raw: Raw, packed: Sequence[Packed]) -> PGresult:
        raw.pgconn.send_query_prepared(self._name, packed, self._formats, result_format=Format.BINARY)
        return self._answer(raw)

    def _answer(self, raw: Raw) -> PGresult:
        # Not the blocking calls of libpq: nobody could interrupt them.
        results: list[PGresult] = raw.wait(generators.execute(raw.pgconn))
        [result] = results
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise error_from_result(result)
        return result
