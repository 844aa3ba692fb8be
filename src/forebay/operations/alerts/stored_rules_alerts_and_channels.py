"""Stored rules, alerts and channels: documents of a store, each guarded by its revision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from forebay.domain.alert import Alert, AlertRule, AlertTransition, RuleState
from forebay.domain.alert_channel import Channel
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.stored_document import CHANNEL, Document
from forebay.errors import StoreUnavailable
from forebay.prepared_types import prepare_type
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

RULE: Final = "alert-rule"
ALERT: Final = "alert"
BOARD: Final = "alert-board"
PAGE: Final = 1_000
MAX_TRIES: Final = 20

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class AlertNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A transition of an alert that has to be stored and notified; a raised alert is included in full."""

    alert_id: str
    step: AlertTransition
    at: int
    alert: Alert | None = None


class AlertBoard(msgspec.Struct, frozen=True, kw_only=True):
    """The states of all rules, by rule and scope, and the notices that are not passed on yet. `evicted` is
    the server's number of evicted keys at the last evaluation."""

    standings: dict[str, RuleState] = {}
    notices: tuple[AlertNotice, ...] = ()
    evicted: int | None = None


class StoredRecord(NamedTuple, Generic[T]):
    """A stored value; `revision` is the one that its next writer must have read."""

    value: T
    revision: int


class RecordCollection(Generic[T]):
    """The documents of one kind. With `rewrites` an unchanged value is written all the same: that encrypts it
    with the newest key."""

    def __init__(self, kind: str, record_type: Any, *, rewrites: bool = False) -> None:
        self.kind = kind
        self._rewrites = rewrites
        self._decode: Callable[[str], T] = msgspec.json.Decoder(prepare_type(record_type)).decode

    def all(self, reader: Reader) -> dict[str, StoredRecord[T]]:
        """Return all records by name. A document that cannot be decoded is logged and left out; a later
        release may have written it."""
        documents: list[Document] = []
        while True:
            page = reader.documents(self.kind, limit=PAGE, after=documents[-1].name if documents else None)
            documents += page
            if len(page) < PAGE:
                return self._decode_documents(documents)

    def get_many(self, reader: Reader, names: list[str]) -> dict[str, StoredRecord[T]]:
        """Return the records of these names."""
        return self._decode_documents(reader.documents(self.kind, names, limit=len(names))) if names else {}

    def get(self, reader: Reader, name: str) -> StoredRecord[T] | None:
        return self.get_many(reader, [name]).get(name)

    def get_or(self, reader: Reader, name: str, default: T) -> StoredRecord[T]:
        """Return a record, or `default` if it does not exist or cannot be decoded."""
        documents = reader.documents(self.kind, [name], limit=1)
        return self._decode_documents(documents).get(name) or StoredRecord(
            default, documents[0].revision if documents else 0
        )

    def save(
        self, store: Store, name: str, value: T, revision: int = 0, *, event: Event | None = None
    ) -> bool:
        """Save a value that was computed from this revision; return false if there is a newer one."""
        body = msgspec.json.encode(value).decode()
        document = Document(kind=self.kind, name=name, body=body, revision=revision)
        return store.save_document(document, event=event)

    def update_with_retry(
        self,
        store: Store,
        reader: Reader,
        name: str,
        change: Callable[[StoredRecord[T] | None], tuple[T, Event]],
    ) -> T:
        """Apply a change to the stored value; retry if another process has changed it in between."""
        for _ in range(MAX_TRIES):
            documents = reader.documents(self.kind, [name], limit=1)
            record = self._decode_documents(documents).get(name)
            value, event = change(record)
            if record is not None and record.value == value and not self._rewrites:
                return value
            # This replaces also a document that cannot be decoded.
            if self.save(store, name, value, documents[0].revision if documents else 0, event=event):
                return value
        raise StoreUnavailable(
            f"{self.kind} {name} is changed by other processes again and again; try again later"
        )

    def _decode_documents(self, documents: list[Document]) -> dict[str, StoredRecord[T]]:
        records = {}
        for document in documents:
            try:
                records[document.name] = StoredRecord(self._decode(document.body), document.revision)
            except ValueError as exc:
                logger.warning("%s %s cannot be read: %s", self.kind, document.name, exc)
        return records


RULES: Final = RecordCollection[AlertRule](RULE, AlertRule)
ALERTS: Final = RecordCollection[Alert](ALERT, Alert)
CHANNELS: Final = RecordCollection[Channel](CHANNEL, Channel, rewrites=True)
BOARDS: Final = RecordCollection[AlertBoard](BOARD, AlertBoard)


def all_rules(reader: Reader) -> dict[str, AlertRule]:
    """Return all rules by id: the built-in ones with their changes, and the stored ones."""
    stored = {name: record.value for name, record in RULES.all(reader).items()}
    return dict(sorted({**DEFAULT_ALERT_RULES, **stored}.items()))


def audit_event(
    actor: str, detail: str, changes: Changes | Mapping[str, tuple[Any, Any]] | None = None
) -> Event:
    """Return an event of the audit log about alerts."""
    return Event(kind=EventKind.ALERT_CHANGED, actor=actor, detail=detail, changes=dict(changes or {}))
