"""Export of the audit log: new lines of the chain go to a sink, once each as far as the sink can tell."""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.cli.audit_sinks import Sink, SinkFailed
from forebay.cli.signals import collect_signals
from forebay.domain.audit_chain import START, ChainLine, ChainLink, find_flaw
from forebay.domain.document import Document
from forebay.domain.query import MAX_PAGE
from forebay.errors import IllegalTransition, StoreUnavailable
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.worker.inbox import WakeSignal

KIND: Final = "audit-export"

logger: logging.Logger = logging.getLogger(__name__)


class _Cursor(msgspec.Struct, frozen=True):
    """How far an export has come, for a destination that cannot be asked."""

    to: str
    position: int
    hash: str


class AuditExporter:
    """Sends each line after the one before. What was sent is remembered after it was sent: an export that is
    killed in between sends some lines twice, and none never."""

    def __init__(self, store: Store, reader: Reader, sink: Sink, *, restarts: bool = False) -> None:
        self._store = store
        self._reader = reader
        self._sink = sink
        name = hashlib.sha256(sink.destination.encode()).hexdigest()
        [kept] = reader.documents(KIND, [name]) or [Document(kind=KIND, name=name, body="{}")]
        self._document = kept
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
        """Name a log that does not hold the last line that was sent: it was cut short or written anew."""
        found = self._reader.audit_chain(limit=1, after=head.position - 1)
        if not found or (found[0].position == head.position and found[0].hash != head.hash):
            self._report_flaw(head.position, "it was exported, and the log does not hold it any more")

    def send_all(self) -> None:
        """Send all that is there."""
        while self._store.chain_audit(MAX_PAGE):
            pass
        while lines := self._reader.audit_chain(limit=MAX_PAGE, after=(self._head or START).position):
            self._send(lines)

    def _send(self, lines: list[ChainLine]) -> None:
        try:
            self._sink.send(lines)
        except OSError as exc:
            raise SinkFailed(f"{self._sink.destination}: {exc}; the lines stay in the store") from exc
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
        logger.error("position %d of the audit log does not fit: %s", position, reason)

    def _save_cursor(self, head: ChainLink) -> None:
        cursor = _Cursor(self._sink.destination, head.position, head.hash)
        document = replace(self._document, body=msgspec.json.encode(cursor).decode())
        if not self._store.save_document(document):
            raise IllegalTransition(
                f"another export to {self._sink.destination} is running; stop one of them"
            )
        self._document = replace(document, revision=document.revision + 1)


def export_until_stopped(exporter: AuditExporter, every: float) -> None:
    """Send new lines until a signal says stop. A sink or a store that is away is tried again."""
    bell = WakeSignal()
    with collect_signals(bell) as heard:
        logger.info("the export runs")
        while not heard:
            try:
                exporter.send_all()
            except (SinkFailed, StoreUnavailable) as exc:
                logger.warning("the export goes on later: %s", exc)
            bell.wait(every)
