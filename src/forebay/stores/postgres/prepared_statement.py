"""Statements prepared once per session, with parameters packed by `binary`.

The driver determines the types of the parameters at every call. For a single job that takes longer than the
server needs to insert it.
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

from forebay.stores.postgres.binary_parameters import Packed
from forebay.stores.postgres.connection import Raw
from forebay.stores.postgres.placeholders import number_placeholders
from forebay.stores.shared.rows import Row

_unpack_bigint: Final = Struct("!q").unpack
_SUCCESS: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class PreparedStatement:
    """One statement, by itself a transaction."""

    def __init__(self, name: str, statement: bytes) -> None:
        text, self._names = number_placeholders(statement)
        self._name = f"forebay_{name}".encode()
        self._text = text.encode()
        self._formats = [Format.BINARY] * len(self._names)
        self._prepared_on: Raw | None = None

    def __call__(self, raw: Raw, values: Mapping[str, Packed]) -> int | None:
        """Run the statement and return its number; None if there is no row."""
        answer = self._execute(raw, values)
        value = answer.get_value(0, 0) if answer.ntuples else None
        return None if value is None else int(_unpack_bigint(value)[0])

    def rows(self, raw: Raw, values: Mapping[str, Packed]) -> list[Row]:
        """Run the statement and return its rows."""
        return _decode_rows(raw, self._execute(raw, values))

    def _execute(self, raw: Raw, values: Mapping[str, Packed]) -> PGresult:
        packed = [values[name] for name in self._names]
        if raw is self._prepared_on:
            try:
                return self._send_and_fetch(raw, packed)
            except errors.InvalidSqlStatementName:
                pass  # after a rollback the driver deallocates all statements, not only its own
        self._prepare(raw)
        return self._send_and_fetch(raw, packed)

    def prepare(self, raw: Raw, *, anew: bool = False) -> None:
        """Prepare the statement, if needed, before it is sent in a pipeline."""
        if raw is not self._prepared_on:
            self._prepare(raw)
        elif anew:
            # A statement that ran since the rollback is prepared already.
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
        """Send the statement as part of a pipeline; `execute_pipelined` fetches the results."""
        packed = [values[name] for name in self._names]
        raw.pgconn.send_query_prepared(self._name, packed, self._formats, result_format=Format.BINARY)


def execute_pipelined(
    raw: Raw, calls: Sequence[PreparedStatement], values: Mapping[str, Packed]
) -> list[list[Row]]:
    """Run several statements in one round trip and one implicit transaction; return the rows of each.

    Each statement sees what was committed before it began.
    """
    for call in calls:
        call.prepare(raw)
    try:
        answers = _send_pipelined(raw, calls, values)
    except errors.InvalidSqlStatementName:
        # After a rollback the driver deallocates all statements, not only its own.
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
    # An interrupt before the end leaves unread results on the connection; it is dropped then.
    answers = _fetch_until_sync(raw, len(calls))
    raw.pgconn.exit_pipeline_mode()
    return [_check_result(answer) for answer in answers]


def _fetch_until_sync(raw: Raw, calls: int) -> list[PGresult]:
    """Return the results of a pipeline up to its end. If the COMMIT fails, its error is one more result."""
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
    # Not the blocking calls of libpq, which cannot be interrupted.
    results: list[PGresult] = raw.wait(generators.execute(raw.pgconn))
    # The server commits after it has answered the statement. If the COMMIT fails, its error comes second.
    answer, *_ = [_check_result(result) for result in results]
    return answer


def _check_result(result: PGresult) -> PGresult:
    if result.status not in _SUCCESS:
        raise error_from_result(result)
    return result
