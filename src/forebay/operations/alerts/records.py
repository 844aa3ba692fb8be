"""Rules, alerts and channels as documents of a store, each guarded by its revision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from forebay.domain.alert import Alert, AlertRule, AlertTransition, RuleState
from forebay.domain.alert_channel import Channel
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.document import CHANNEL, Document
from forebay.domain.history import Changes, Event, EventKind
from forebay.errors import StoreUnavailable
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
    """News of an alert that has to be written down and told; a raised one comes whole."""

    alert_id: str
    step: AlertTransition
    at: int
    alert: Alert | None = None


class AlertBoard(msgspec.Struct, frozen=True, kw_only=True):
    """How all rules stand, by rule and what it looks at; news that nobody has passed on for sure; and what
    the server had thrown away when it was last looked at."""

    standings: dict[str, RuleState] = {}
    notices: tuple[AlertNotice, ...] = ()
    evicted: int | None = None


class StoredRecord(NamedTuple, Generic[T]):
    """Something as it is stored; `revision` is what its next writer must have seen."""

    value: T
    revision: int


class RecordCollection(Generic[T]):
    """The documents of one kind. With `rewrites` a change that changes nothing is written all the same: it
    encrypts with the newest key."""

    def __init__(self, kind: str, record_type: Any, *, rewrites: bool = False) -> None:
        self.kind = kind
        self._rewrites = rewrites
        self._decode: Callable[[str], T] = msgspec.json.Decoder(record_type).decode

    def all(self, reader: Reader) -> dict[str, StoredRecord[T]]:
        """By name. What cannot be read is left out with a line in the log; a later release may have written
        it."""
        found: list[Document] = []
        while True:
            page = reader.documents(self.kind, limit=PAGE, after=found[-1].name if found else None)
            found += page
            if len(page) < PAGE:
                return self._decode_documents(found)

    def get_many(self, reader: Reader, names: list[str]) -> dict[str, StoredRecord[T]]:
        """Those that are named."""
        return self._decode_documents(reader.documents(self.kind, names, limit=len(names))) if names else {}

    def get(self, reader: Reader, name: str) -> StoredRecord[T] | None:
        return self.get_many(reader, [name]).get(name)

    def get_or(self, reader: Reader, name: str, default: T) -> StoredRecord[T]:
        """One, or something else to begin with: also in the place of one that cannot be read."""
        found = reader.documents(self.kind, [name], limit=1)
        return self._decode_documents(found).get(name) or StoredRecord(
            default, found[0].revision if found else 0
        )

    def save(
        self, store: Store, name: str, value: T, revision: int = 0, *, event: Event | None = None
    ) -> bool:
        """Write what was worked out from this revision; false if there is another by now."""
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
        """Work a change out from what is stored, again while somebody else is faster."""
        for _ in range(MAX_TRIES):
            found = reader.documents(self.kind, [name], limit=1)
            kept = self._decode_documents(found).get(name)
            value, event = change(kept)
            if kept is not None and kept.value == value and not self._rewrites:
                return value
            # Also in the place of one that cannot be read.
            if self.save(store, name, value, found[0].revision if found else 0, event=event):
                return value
        raise StoreUnavailable(f"{self.kind} {name} is changed by others again and again; try again later")

    def _decode_documents(self, documents: list[Document]) -> dict[str, StoredRecord[T]]:
        found = {}
        for one in documents:
            try:
                found[one.name] = StoredRecord(self._decode(one.body), one.revision)
            except ValueError as exc:
                logger.warning("%s %s cannot be read: %s", self.kind, one.name, exc)
        return found


RULES: Final = RecordCollection[AlertRule](RULE, AlertRule)
ALERTS: Final = RecordCollection[Alert](ALERT, Alert)
CHANNELS: Final = RecordCollection[Channel](CHANNEL, Channel, rewrites=True)
BOARDS: Final = RecordCollection[AlertBoard](BOARD, AlertBoard)


def all_rules(reader: Reader) -> dict[str, AlertRule]:
    """By id: the usual ones as somebody has changed them, and those that somebody has made."""
    return dict(
        sorted(
            {**DEFAULT_ALERT_RULES, **{name: one.value for name, one in RULES.all(reader).items()}}.items()
        )
    )


def audit_event(
    actor: str, detail: str, changes: Changes | Mapping[str, tuple[Any, Any]] | None = None
) -> Event:
    """The line in the audit log."""
    return Event(kind=EventKind.ALERT_CHANGED, actor=actor, detail=detail, changes=dict(changes or {}))
