"""One connection to a PostgreSQL server: its settings, errors in our words, and transactions."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil, inf
from typing import Any, Final, TypeVar

import msgspec
import psycopg
from psycopg import errors
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from forebay.errors import ConfigError, StoreBusy, StoreError
from forebay.stores.postgres.binary import ListDumper
from forebay.stores.postgres.errors import DRIVER_ERRORS, translate_error
from forebay.stores.postgres.session import Session

T = TypeVar("T")
Raw = Session
Statements = Mapping[str, bytes]

TRIES: Final = 10
CANCEL_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 10
# How long a server may say nothing. One that runs ends a statement before that.
ANSWER_SECONDS: Final = 35.0
# The same for what keeps leases: a third of the usual one, after which they are renewed.
RENEWAL_SECONDS: Final = 10.0
# A session that was not used for so long is looked at before it is: a server that was started again, a
# failover or a balancer may have ended it meanwhile. Whoever is busy need not look, and hears of it anyway.
IDLE_SECONDS: Final = 1.0
# A newer program may migrate the schema under a handle that is open. A step that old programs cannot work
# with ends their sessions; those that it may not end find out by a look at the schema's number this often.
SCHEMA_SECONDS: Final = 5.0
# The narrow tables look small when a statement is planned and are full of dead rows while another transaction
# keeps the vacuum from its work. Whatever reads a whole table, or builds a hash of it, is wrong here.
_PLANNING: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
}
# A statement is planned once in a session, and not for what it is given: with a list of one name, as most
# are, the server takes it for cheaper to plan for that very list at each call, which takes longer than its
# work. Not where we only look: what a search is given decides where it has to look.
_GENERIC_PLAN: Final = {"plan_cache_mode": "force_generic_plan"}
_TIMEOUTS: Final = {
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "60s",
    # A stricter default of a database or a user fails where we rely on seeing what others have committed.
    "default_transaction_isolation": "read committed",
}
# A machine that is gone, in the middle of a transaction, must not keep its locks for hours.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}
# The same for a process that is stopped. What is sent as a pipeline is never idle to a server, so that only
# the limit of a whole transaction holds there, which servers have from this version on.
_TRANSACTION_TIMEOUT_FROM: Final = 170_000
_TRANSACTION_TIMEOUT: Final = {"transaction_timeout": "60s"}
# Whoever settles a job while somebody makes the partition of its day has chosen another one for it, and is
# refused by that one's limits.
PARTITION_CREATED: Final = errors.CheckViolation
# An id that was made for a new job is another job's: the next try makes other ids. Or another transaction has
# stored the id that a caller brought, and the next try sees that job.
ID_TAKEN: Final = errors.UniqueViolation
# Another try of the same transaction may well succeed, and nothing of this one has happened.
RETRYABLE_ERRORS: Final = (errors.DeadlockDetected, errors.SerializationFailure, PARTITION_CREATED, ID_TAKEN)


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is and how it is talked to. `pooled` means a pooler that gives each transaction to any
    session: then nothing may be left in a session, and no statement is prepared. After `response_timeout` seconds
    without a word a server is given up."""

    dsn: str
    schema: str = "forebay"
    pooled: bool = False
    notifies: bool = True
    response_timeout: float = ANSWER_SECONDS

    @property
    def location(self) -> str:
        """The same text for all addresses of one store; without user and password."""
        parts = psycopg.conninfo.conninfo_to_dict(self.dsn)
        database = parts.get("dbname") or parts.get("user") or ""
        server = f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"
        return f"postgresql://{server}/{database}?schema={self.schema}"

    @property
    def connect_timeout(self) -> int:
        """Seconds for a connection to each host."""
        return min(CONNECT_SECONDS, ceil(self.response_timeout))

    @property
    def statement_timeout(self) -> str:
        """What a statement may take: less than an answer is waited for, so that a server that runs says so
        itself, and the statement ends there too."""
        return f"{max(self.response_timeout - 5, self.response_timeout / 2) * 1_000:.0f}ms"

    @property
    def application(self) -> str:
        """The name of our sessions on the server. It tells stores of one database apart."""
        return "forebay" if self.schema == "forebay" else f"forebay {self.schema}"

    @property
    def channel(self) -> str:
        """What wake-ups of this store are sent on."""
        return f"forebay:{self.schema}"[:63]


def address_of(
    dsn: str,
    safe_url: str,
    schema: str = "forebay",
    pooler: str = "session",
    notify: str | None = None,
    response_timeout: float = ANSWER_SECONDS,
) -> PostgresAddress:
    """An address from the options of a URL; raises ConfigError for what cannot be meant.

    Behind a pooler of transactions nobody can listen, so nothing is sent there unless it is asked for.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,54}", schema):
        raise ConfigError(
            f"{safe_url!r}: schema must be 1 to 55 letters, digits and underscores, and not begin "
            f"with a digit"
        )
    if pooler not in ("session", "transaction"):
        raise ConfigError(f"{safe_url!r}: pooler must be session or transaction")
    if notify not in ("on", "off", None):
        raise ConfigError(f"{safe_url!r}: notify must be on or off")
    try:
        psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as exc:
        # Not chained, and not quoted unless it speaks of an option: it may hold the password. So may an
        # option if there is an @ behind the ?: that was in a password that nobody has escaped.
        has_sign = "%40" in dsn.partition("?")[2]
        option = None if has_sign else re.match(r"invalid URI query parameter: .*", str(exc))
        said = option[0] if option else "write postgresql://user:password@host:port/database"
        raise ConfigError(f"{safe_url!r} is not an address of PostgreSQL: {said}") from None
    is_pooled = pooler == "transaction"
    return PostgresAddress(
        dsn=dsn,
        schema=schema,
        pooled=is_pooled,
        notifies=not is_pooled if notify is None else notify == "on",
        response_timeout=response_timeout,
    )


class RetryTransaction(Exception):
    """What the transaction has relied on has changed under it; it is undone and made again."""


def use_our_types(adapters: AdaptersMap) -> None:
    """Whole numbers are bigint: else each size of a number would make another statement of the same text. And
    lists are packed in our way."""
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(list, ListDumper)


def quote_identifier(schema: str) -> str:
    """The schema's name as it stands in a statement."""
    return '"' + schema.replace('"', '""') + '"'


def for_schema(statement: str, schema: str) -> str:
    """A statement of ours, which names the schema `forebay`, for the schema of this store."""
    return re.sub(r"\bforebay\.", lambda _: f"{quote_identifier(schema)}.", statement)


def prepare_statements(statements: Mapping[str, str], schema: str) -> dict[str, bytes]:
    """Statements as they are sent: for this schema, and without the reasons that stand in them."""
    return {
        name: for_schema(re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE), schema).strip().encode()
        for name, text in statements.items()
    }


_parent_connections: Final[list[Raw | None]] = []


class Connection:
    """A connection of our own, made when it is first needed and made again after it was lost."""

    def __init__(self, address: PostgresAddress, *, reads: bool = False) -> None:
        self.address = address
        self._reads = reads
        self._raw: Raw | None = None
        self._answer_seconds = address.response_timeout
        self._pid = os.getpid()
        self._used_at = 0.0
        self.generation: int = 0  # how often it was made
        self._schema_check: Callable[[Raw], None] | None = None
        self._checked_at = -inf

    @property
    def location(self) -> str:
        return self.address.location

    def open(self) -> Raw:
        """The connection, made if there is none. One from before a fork is the parent's, and left alone: to
        close it, or to let the garbage collector do so, would end the parent's session."""
        if self._pid != os.getpid():
            _parent_connections.append(self._raw)
            self._raw, self._pid = None, os.getpid()
        was_used_at, self._used_at = self._used_at, time.monotonic()
        if self._raw is not None and self._used_at - was_used_at >= IDLE_SECONDS:
            _read_pending_input(self._raw)
        if self._raw is None or self._raw.closed:
            self._raw = self._connect()
            self.generation += 1
            self._checked_at = -inf
        self._raw.answer_timeout = self._answer_seconds
        self._check_schema(self._raw)
        return self._raw

    def watch_schema(self, check: Callable[[Raw], None]) -> None:
        """Look at the schema with each new connection and every few seconds. `check` raises if it has
        outgrown this program."""
        self._schema_check = check
        self._checked_at = time.monotonic()

    def _check_schema(self, raw: Raw) -> None:
        """Look if it is time, and not inside a transaction, which has looked when it began. A refusal is
        repeated, since it leaves the time of the last look alone."""
        is_due = self._used_at - self._checked_at >= SCHEMA_SECONDS
        is_idle = raw.pgconn.transaction_status == TransactionStatus.IDLE
        if self._schema_check is not None and is_due and is_idle:
            self._schema_check(raw)
            self._checked_at = self._used_at

    @contextmanager
    def short_timeouts(self) -> Iterator[None]:
        """Leases run out while we wait. Where no answer comes, it may be that somebody on its way
        has forgotten the connection: given up in time, the leases are kept over another one."""
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
        raw.prepared_max = 1_000  # more than we have statements, with all the types they are given
        if not pooled and (longest := self._transaction_timeout(raw)):
            try:
                raw.execute(_as_settings(longest, is_local=False), prepare=False)
            except BaseException:
                raw.close()
                raise
        return raw

    def _transaction_timeout(self, raw: Raw) -> Mapping[str, str]:
        """How long a transaction may last. Not where we only look: a check of everything takes its time, and
        holds up nobody."""
        return (
            _TRANSACTION_TIMEOUT
            if raw.info.server_version >= _TRANSACTION_TIMEOUT_FROM and not self._reads
            else {}
        )

    def _options(self) -> Iterator[str]:
        """What the address says of a session, and then what we need; a pooler takes nothing of ours."""
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
        """A transaction that is kept if the block ends well. All of it is sent as one pipeline: a statement
        is waited for only where somebody looks at its answer. Not so where it `defines` tables: then the
        driver throws its prepared statements away, and with some of them under way it loses count. That may
        take long as well.

        Whatever goes wrong, it is undone or the connection is dropped; so nothing is ever left open.
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
        """Do some work in a transaction that happens whole or not at all.

        One that met another and had to give way has changed nothing, and is made again a few times.
        """
        for attempt in range(TRIES):
            try:
                with self.transaction(defines=defines) as raw:
                    answer = work(raw)
                return answer
            except (RetryTransaction, *RETRYABLE_ERRORS) as exc:
                if attempt == TRIES - 1:
                    raise self._retries_exhausted_error(exc) from exc
                time.sleep(0.002 * 2 ** min(attempt, 5) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads them
            except DRIVER_ERRORS as exc:
                raise self._translate_error(exc) from exc
        raise AssertionError("the last try answers or raises")

    def call(self, statement: Callable[[Raw], T]) -> T:
        """Run one statement that is a transaction by itself. One that had to give way to another has changed
        nothing, and raises RetryTransaction."""
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
        """Interrupted: whatever is still under way has nobody who waits for it. A server does not notice that
        we have left before it wants to answer: a statement that waits for a lock would happen later on."""
        if raw.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):
                raw.cancel_safe(timeout=CANCEL_SECONDS)
        self.drop()

    def _translate_error(self, exc: Exception) -> StoreError:
        if isinstance(exc, errors.ReadOnlySqlTransaction):
            # Where the address names several hosts, another one is the primary by now; who keeps this
            # connection would ask the old one for ever.
            self.drop()
        return translate_error(self.location, exc)

    def _retries_exhausted_error(self, exc: Exception) -> StoreError:
        # A taken id says nothing against the value: with other ids the same call may succeed.
        if isinstance(exc, psycopg.Error) and not isinstance(exc, ID_TAKEN):
            return translate_error(self.location, exc)
        return StoreBusy(f"{self.location} is too busy: others changed the same jobs {TRIES} times")

    def drop(self) -> None:
        """Let go of the connection; the next call makes another one."""
        raw, self._raw = self._raw, None
        if raw is not None and self._pid == os.getpid():
            with suppress(psycopg.Error):
                raw.close()

    close = drop


def _read_pending_input(raw: Raw) -> None:
    """Read what has come unasked, without a wait; then `closed` is true of a session that was ended. The
    driver itself finds out only when it asks something, too late to ask another server instead: nobody
    could know whether it was done. The last words of a server come first, and its end at the second look."""
    with suppress(psycopg.Error):
        raw.pgconn.consume_input()
        raw.pgconn.consume_input()


def _as_options(settings: Mapping[str, str]) -> str:
    return " ".join("-c " + f"{name}={value}".replace(" ", "\\ ") for name, value in settings.items())


def _as_settings(settings: Mapping[str, str], *, is_local: bool) -> bytes:
    calls = ", ".join(f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items())
    return f"select {calls}".encode()


Values = Mapping[str, Any]
