"""Connection to a PostgreSQL server: settings, and transactions with retries."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from forebay.errors import StoreBusy, StoreError
from forebay.stores.postgres.binary_parameters import ListDumper
from forebay.stores.postgres.errors import DRIVER_ERRORS, translate_error
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.postgres.session import Session

T = TypeVar("T")
Raw = Session
Statements = Mapping[str, bytes]

TRIES: Final = 10
CANCEL_SECONDS: Final = 5.0
# The same for renewals: a third of the usual lease, after which leases are renewed.
RENEWAL_SECONDS: Final = 10.0
# A session that was idle for so long is checked before its next use: a restart of the server, a failover or a
# load balancer may have ended it meanwhile. A busy session needs no check: its next statement fails.
IDLE_SECONDS: Final = 1.0
# A newer program may migrate the schema under an open handle. A step that old programs cannot work with ends
# their sessions. Sessions that it may not end detect it, since they check the schema's number this often.
SCHEMA_SECONDS: Final = 5.0
# The narrow tables look small when a statement is planned. They are full of dead tuples while another
# transaction holds back vacuum. A plan that reads or hashes a whole table is wrong here.
_PLANNING: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
}
# A statement is planned once per session, without its parameters. With a list of one name, as most are, the
# server would plan for that very list at each call, which takes longer than the statement itself. Readers
# plan for the parameters: those of a search select its index.
_GENERIC_PLAN: Final = {"plan_cache_mode": "force_generic_plan"}
_TIMEOUTS: Final = {
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "60s",
    # A stricter default of a database or a user fails: statements rely on seeing what was committed before.
    "default_transaction_isolation": "read committed",
}
# A machine that disappears in the middle of a transaction must not keep its locks for hours.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}
# The same for a stopped process. To the server a pipeline is never idle, so only the timeout of a whole
# transaction helps there, which servers have from this version on.
_TRANSACTION_TIMEOUT_FROM: Final = 170_000
_TRANSACTION_TIMEOUT: Final = {"transaction_timeout": "60s"}
# A settlement that runs while the partition of its day is created has chosen the default partition, and the
# new constraint of that one refuses it.
PARTITION_CREATED: Final = errors.CheckViolation
# A generated id collided with another job: the next try generates other ids. Or another transaction has
# stored the id that a caller gave, and the next try sees that job.
ID_TAKEN: Final = errors.UniqueViolation
# Nothing of the transaction has happened, and another try may succeed.
RETRYABLE_ERRORS: Final = (errors.DeadlockDetected, errors.SerializationFailure, PARTITION_CREATED, ID_TAKEN)


class RetryTransaction(Exception):
    """Data that the transaction relied on has changed; it is rolled back and run again."""


def use_our_types(adapters: AdaptersMap) -> None:
    """Register the dumpers of this engine for integers and lists.

    All integers are bigint: otherwise each size of a number would prepare another statement of the same text.
    """
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(list, ListDumper)


def quote_identifier(schema: str) -> str:
    """Return the name of the schema as a quoted identifier."""
    return '"' + schema.replace('"', '""') + '"'


def for_schema(statement: str, schema: str) -> str:
    """Replace the schema `forebay` of a statement file by the schema of this store."""
    return re.sub(r"\bforebay\.", lambda _: f"{quote_identifier(schema)}.", statement)


def prepare_statements(statements: Mapping[str, str], schema: str) -> dict[str, bytes]:
    """Return statements ready to send, for this schema."""
    return {name: for_schema(text, schema).encode() for name, text in statements.items()}


_parent_connections: Final[list[Raw | None]] = []


class Connection:
    """Lazy connection that is opened again after it was lost."""

    def __init__(self, address: PostgresAddress, *, reads: bool = False) -> None:
        self.address = address
        self._reads = reads
        self._raw: Raw | None = None
        self._answer_seconds = address.response_timeout
        self._pid = os.getpid()
        self._used_at = 0.0
        self.generation: int = 0  # how often it was opened
        self._schema_check: Callable[[Raw], None] | None = None
        self._checked_at = -inf

    @property
    def location(self) -> str:
        return self.address.location

    def open(self) -> Raw:
        """Return the connection; open it if there is none.

        A connection from before a fork belongs to the parent and is left alone. To close it, or to let the
        garbage collector do so, would end the parent's session.
        """
        if self._pid != os.getpid():
            _parent_connections.append(self._raw)
            self._raw, self._pid = None, os.getpid()
        last_used_at, self._used_at = self._used_at, time.monotonic()
        if self._raw is not None and self._used_at - last_used_at >= IDLE_SECONDS:
            _read_pending_input(self._raw)
        if self._raw is None or self._raw.closed:
            self._raw = self._connect()
            self.generation += 1
            self._checked_at = -inf
        self._raw.answer_timeout = self._answer_seconds
        self._check_schema(self._raw)
        return self._raw

    def watch_schema(self, check: Callable[[Raw], None]) -> None:
        """Check the schema with each new connection and every few seconds.

        `check` raises if the schema is too new for this program.
        """
        self._schema_check = check
        self._checked_at = time.monotonic()

    def _check_schema(self, raw: Raw) -> None:
        """Check the schema if it is due, and not inside a transaction, which was checked when it began.

        A refusal is repeated, since it does not update the time of the last check.
        """
        is_due = self._used_at - self._checked_at >= SCHEMA_SECONDS
        is_idle = raw.pgconn.transaction_status == TransactionStatus.IDLE
        if self._schema_check is not None and is_due and is_idle:
            self._schema_check(raw)
            self._checked_at = self._used_at

    @contextmanager
    def short_timeouts(self) -> Iterator[None]:
        """Shorten the response timeout for renewals and heartbeats.

        A NAT or load balancer may have dropped the idle connection. Leases expire meanwhile, so the renewal
        must fail early enough to reconnect.
        """
        usual = self._answer_seconds
        self._answer_seconds = min(RENEWAL_SECONDS, usual)
        try:
            yield
        finally:
            self._answer_seconds = usual

    def _connect(self) -> Raw:
        pooled = self.address.pooled
        raw = Session.connect(
            self.address.dsn,
            autocommit=True,
            prepare_threshold=None if pooled else 0,
            connect_timeout=self.address.connect_timeout,
            application_name=self.address.application,
            client_encoding="utf8",
            keepalives_idle=30,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
            options=" ".join(self._options()),
        )
        raw.answer_timeout = self._answer_seconds
        use_our_types(raw.adapters)
        raw.prepared_max = 1_000  # more than the statements with all the types of their parameters
        if not pooled and (longest := self._transaction_timeout(raw)):
            try:
                raw.execute(_as_settings(longest, is_local=False), prepare=False)
            except BaseException:
                raw.close()
                raise
        return raw

    def _transaction_timeout(self, raw: Raw) -> Mapping[str, str]:
        """Return the transaction timeout; readers have none, since a health check takes long."""
        return (
            _TRANSACTION_TIMEOUT
            if raw.info.server_version >= _TRANSACTION_TIMEOUT_FROM and not self._reads
            else {}
        )

    def _options(self) -> Iterator[str]:
        """Yield session options: those of the address, then our own. A pooler accepts none of ours."""
        yield str(psycopg.conninfo.conninfo_to_dict(self.address.dsn).get("options") or "")
        if not self.address.pooled:
            yield _as_options({**_PLANNING, **self._timeouts, **_KEEPALIVE})
            if not self._reads:
                yield _as_options(_GENERIC_PLAN)

    @property
    def _timeouts(self) -> Mapping[str, str]:
        return {"statement_timeout": self.address.statement_timeout, **_TIMEOUTS}

    @property
    def _begin(self) -> bytes:
        if self._reads:
            return b"begin isolation level repeatable read read only"
        return b"begin isolation level read committed"

    @contextmanager
    def transaction(self, *, defines: bool = False) -> Iterator[Raw]:
        """Run a transaction that commits if the block ends without an error.

        All of it is sent as one pipeline: a result is waited for only where it is read. A transaction that
        `defines` tables runs without one, since the driver then drops its prepared statements and loses count
        of those in the pipeline. It may take long as well.

        After an error it is rolled back or the connection is dropped, so no transaction stays open.
        """
        raw = self.open()
        try:
            with raw.long_timeout() if defines else raw.pipeline():
                raw.execute(self._begin)
                if self.address.pooled:
                    settings = {**_PLANNING, **self._timeouts, **self._transaction_timeout(raw)}
                    raw.execute(_as_settings(settings, is_local=True))
                yield raw
                raw.execute(b"commit")
        except BaseException:
            self._rollback(raw)
            raise

    def _rollback(self, raw: Raw) -> None:
        try:
            raw.execute(b"rollback")
        except BaseException as exc:
            self.drop()
            if not isinstance(exc, psycopg.Error):
                raise

    def write(self, work: Callable[[Raw], T], *, defines: bool = False) -> T:
        """Run the work in one transaction, again after a deadlock or another retryable error."""
        for attempt in range(TRIES):
            try:
                with self.transaction(defines=defines) as raw:
                    result = work(raw)
                return result
            except (RetryTransaction, *RETRYABLE_ERRORS) as exc:
                if attempt == TRIES - 1:
                    raise self._retries_exhausted_error(exc) from exc
                time.sleep(0.002 * 2 ** min(attempt, 5) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads them
            except DRIVER_ERRORS as exc:
                raise self._translate_error(exc) from exc
        raise AssertionError("the last try returns or raises")

    def call(self, statement: Callable[[Raw], T]) -> T:
        """Run one statement that is a transaction by itself.

        Raise RetryTransaction after a retryable error; nothing has changed then.
        """
        raw = None
        try:
            raw = self.open()
            return statement(raw)
        except RETRYABLE_ERRORS as exc:
            raise RetryTransaction from exc
        except DRIVER_ERRORS as exc:
            raise self._translate_error(exc) from exc
        finally:
            if raw is not None and raw.pgconn.transaction_status != TransactionStatus.IDLE:
                self._abandon(raw)

    def _abandon(self, raw: Raw) -> None:
        """Cancel a statement after an interrupt and drop the connection.

        A server notices a closed connection only when it sends a response. Without the cancel a statement
        that waits for a lock would still happen later on.
        """
        if raw.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):
                raw.cancel_safe(timeout=CANCEL_SECONDS)
        self.drop()

    def _translate_error(self, exc: Exception) -> StoreError:
        if isinstance(exc, errors.ReadOnlySqlTransaction):
            # If the address names several hosts, another one is the primary by now. This connection would
            # stay on the old one for ever.
            self.drop()
        return translate_error(self.location, exc)

    def _retries_exhausted_error(self, exc: Exception) -> StoreError:
        # A collision of ids is no fault of the value: with other ids the same call may succeed.
        if isinstance(exc, psycopg.Error) and not isinstance(exc, ID_TAKEN):
            return translate_error(self.location, exc)
        return StoreBusy(
            f"{self.location} is too busy: other transactions changed the same jobs {TRIES} times"
        )

    def drop(self) -> None:
        """Close the connection; the next call opens another one."""
        raw, self._raw = self._raw, None
        if raw is not None and self._pid == os.getpid():
            with suppress(psycopg.Error):
                raw.close()

    close = drop


def _read_pending_input(raw: Raw) -> None:
    """Read pending input without waiting; afterwards `closed` is true for a session that the server ended.

    The driver itself notices only with the next statement. That is too late to ask another server instead,
    since the statement may have happened. The last message of a server comes first, and its end with the
    second read.
    """
    with suppress(psycopg.Error):
        raw.pgconn.consume_input()
        raw.pgconn.consume_input()


def _as_options(settings: Mapping[str, str]) -> str:
    return " ".join("-c " + f"{name}={value}".replace(" ", "\\ ") for name, value in settings.items())


def _as_settings(settings: Mapping[str, str], *, is_local: bool) -> bytes:
    calls = ", ".join(f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items())
    return f"select {calls}".encode()


Values = Mapping[str, Any]
