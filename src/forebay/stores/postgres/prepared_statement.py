"""Statements that are called by hand: prepared once, with values that are packed here.

The driver finds out at every call which kinds of values it was given. For a single job that takes longer than
the server needs to insert it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from forebay.stores.postgres.binary import Packed
from forebay.stores.postgres.connection import Raw
from forebay.stores.postgres.placeholders import number_placeholders
from forebay.stores.shared.rows import Row

_unpack_bigint: Final = Struct("!q").unpack
_SUCCESS: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class PreparedStatement:
    """One statement that is a transaction by itself."""

    def __init__(self, name: str, statement: bytes) -> None:
        text, self._names = number_placeholders(statement)
        self._name = f"forebay_{name}".encode()
        self._text = text.encode()
        self._formats = [Format.BINARY] * len(self._names)
        self._prepared_on: Raw | None = None

    def __call__(self, raw: Raw, values: Mapping[str, Packed]) -> int | None:
        """The number that it answers with; None if there is no row."""
        answer = self._execute(raw, values)
        value = answer.get_value(0, 0) if answer.ntuples else None
        return None if value is None else int(_unpack_bigint(value)[0])

    def rows(self, raw: Raw, values: Mapping[str, Packed]) -> list[Row]:
        """All that it answers with."""
        return _decode_rows(raw, self._execute(raw, values))

    def _execute(self, raw: Raw, values: Mapping[str, Packed]) -> PGresult:
        packed = [values[name] for name in self._names]
        if raw is self._prepared_on:
            try:
                return self._send_and_fetch(raw, packed)
            except errors.InvalidSqlStatementName:
                pass  # after a rollback the driver lets go of all statements, not only of its own
        self._prepare(raw)
        return self._send_and_fetch(raw, packed)

    def prepare(self, raw: Raw, *, anew: bool = False) -> None:
        """See to it that it can be sent together with others."""
        if raw is not self._prepared_on:
            self._prepare(raw)
        elif anew:
            # Not each of them is gone: one that was called meanwhile, by itself or with others, is there.
            with suppress(errors.DuplicatePreparedStatement):
                self._prepare(raw)

    def _prepare(self, raw: Raw) -> None:
        raw.pgconn.send_prepare(self._name, self._text)
        _fetch_result(raw)
        self._prepared_on = raw

    def _send_and_fetch(self, raw: Raw, packed: Sequence[Packed]) -> PGresult:
        raw.pgconn.send_query_prepared(self._name, packed, self._formats, result_format=Format.BINARY)
        return _fetch_result(raw)

    def send(self, raw: Raw, values: Mapping[str, Packed]) -> None:
        """Send it as one of several, which `together` waits for."""
        packed = [values[name] for name in self._names]
        raw.pgconn.send_query_prepared(self._name, packed, self._formats, result_format=Format.BINARY)


def execute_pipelined(
    raw: Raw, calls: Sequence[PreparedStatement], values: Mapping[str, Packed]
) -> list[list[Row]]:
    """Several statements in one trip, and in one transaction: what the server is sent without a pause is one,
    and each statement sees what was committed before it began. All that each of them answers with."""
    for call in calls:
        call.prepare(raw)
    try:
        answers = _send_pipelined(raw, calls, values)
    except errors.InvalidSqlStatementName:
        # After a rollback the driver lets go of all statements, not only of its own.
        for call in calls:
            call.prepare(raw, anew=True)
        answers = _send_pipelined(raw, calls, values)
    return [_decode_rows(raw, answer) for answer in answers]


def _send_pipelined(
    raw: Raw, calls: Sequence[PreparedStatement], values: Mapping[str, Packed]
) -> list[PGresult]:
    raw.pgconn.enter_pipeline_mode()
    for call in calls:
        call.send(raw, values)
    raw.pgconn.pipeline_sync()
    raw.wait(generators.send(raw.pgconn))
    # An interrupt before the end leaves the connection in the middle of its answers; it is dropped then.
    answers = _fetch_until_sync(raw, len(calls))
    raw.pgconn.exit_pipeline_mode()
    return [_check_result(answer) for answer in answers]


def _fetch_until_sync(raw: Raw, calls: int) -> list[PGresult]:
    """The answers of a pipeline up to its end. Where the COMMIT fails, its error is one answer more."""
    answers: list[PGresult] = []
    for _ in range(calls + 2):
        answers += raw.wait(generators.fetch_many(raw.pgconn))
        if answers and answers[-1].status == ExecStatus.PIPELINE_SYNC:
            return answers[:-1]
    # The connection was lost.
    return [_check_result(answer) for answer in answers]


def _decode_rows(raw: Raw, answer: PGresult) -> list[Row]:
    loads = Transformer(raw)
    loads.set_pgresult(answer)
    return loads.load_rows(0, answer.ntuples, tuple)


def _fetch_result(raw: Raw) -> PGresult:
    # Not the blocking calls of libpq: nobody could interrupt them.
    results: list[PGresult] = raw.wait(generators.execute(raw.pgconn))
    # The server commits after it has answered the statement. Where the COMMIT fails, its error comes second.
    answer, *_ = [_check_result(result) for result in results]
    return answer


def _check_result(result: PGresult) -> PGresult:
    if result.status not in _SUCCESS:
        raise error_from_result(result)
    return result
