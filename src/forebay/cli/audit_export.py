"""Export of the audit log: each new entry of the hash chain goes to a sink, once if the sink can tell."""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.cli.audit_sinks import Sink, SinkFailed
from forebay.cli.stop_signals import collect_signals
from forebay.domain.audit_hash_chain import START, ChainLine, ChainLink, find_flaw
from forebay.domain.job_query import MAX_PAGE
from forebay.domain.stored_document import Document
from forebay.errors import IllegalTransition, StoreUnavailable
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.worker.coordinator_inbox import WakeSignal

KIND: Final = "audit-export"

logger: logging.Logger = logging.getLogger(__name__)


class _Cursor(msgspec.Struct, frozen=True):
    """Position of an export, for a destination that cannot report it."""

    to: str
    position: int
    hash: str


class AuditExporter:
    """Exporter of audit entries, in order. The cursor is saved after the send: an export that is killed in
    between sends some entries twice, and skips none (at-least-once delivery)."""

    def __init__(self, store: Store, reader: Reader, sink: Sink, *, restarts: bool = False) -> None:
        self._store = store
        self._reader = reader
        self._sink = sink
        name = hashlib.sha256(sink.destination.encode()).hexdigest()
        [document] = reader.documents(KIND, [name]) or [Document(kind=KIND, name=name, body="{}")]
        self._document = document
        self._head: ChainLink | None = None if restarts else self._find_last()
        self.sent: int = 0
        self.flaws: int = 0
        if self._head is not None:
            self._check_known(self._head)

    def _find_last(self) -> ChainLink | None:
        if self._document.revision:
            cursor = msgspec.json.decode(self._document.body, type=_Cursor)
            return self._sink.find_last() or ChainLink(cursor.position, cursor.hash)
        return self._sink.find_last()

    def _check_known(self, head: ChainLink) -> None:
        """Report a log without the last entry that was sent: it was truncated or rewritten."""
        found = self._reader.audit_chain(limit=1, after=head.position - 1)
        if not found or (found[0].position == head.position and found[0].hash != head.hash):
            self._report_flaw(head.position, "it was exported, and the log no longer has it")

    def send_all(self) -> None:
        """Send all present entries."""
        while self._store.chain_audit(MAX_PAGE):
            pass
        while lines := self._reader.audit_chain(limit=MAX_PAGE, after=(self._head or START).position):
            self._send(lines)

    def _send(self, lines: list[ChainLine]) -> None:
        try:
            self._sink.send(lines)
        except OSError as exc:
            raise SinkFailed(f"{self._sink.destination}: {exc}; the entries stay in the store") from exc
        for line in lines:
            before = START if self._head is None and line.position == 1 else self._head
            reason = find_flaw(line, before)
            if reason is not None:
                self._report_flaw(line.position, reason)
            self._head = line.link
        self.sent += len(lines)
        self._save_cursor(lines[-1].link)

    def _report_flaw(self, position: int, reason: str) -> None:
        self.flaws += 1
        logger.error("position %d of the audit log is wrong: %s", position, reason)

    def _save_cursor(self, head: ChainLink) -> None:
        cursor = _Cursor(self._sink.destination, head.position, head.hash)
        document = replace(self._document, body=msgspec.json.encode(cursor).decode())
        if not self._store.save_document(document):
            raise IllegalTransition(
                f"another export to {self._sink.destination} is running; stop one of them"
            )
        self._document = replace(document, revision=document.revision + 1)


def export_until_stopped(exporter: AuditExporter, every: float) -> None:
    """Send new entries until a stop signal; retry if the sink or the store is away."""
    wake_signal = WakeSignal()
    with collect_signals(wake_signal) as signals:
        logger.info("the export runs")
        while not signals:
            try:
                exporter.send_all()
            except (SinkFailed, StoreUnavailable) as exc:
                logger.warning("the export is retried later: %s", exc)
            wake_signal.wait(every)
