"""Rules, alerts and channels as documents of a store, each guarded by its revision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from forebay.domain.alert import Alert, Rule, Standing, Step
from forebay.domain.channel import Channel
from forebay.domain.document import CHANNEL, Document
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.usual_rules import USUAL_RULES
from forebay.errors import StoreUnavailable
from forebay.stores.protocol import Reader, Store

RULE: Final = "alert-rule"
ALERT: Final = "alert"
BOARD: Final = "alert-board"
PAGE: Final = 1_000
TRIES: Final = 20

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """News of an alert that has to be written down and told; a raised one comes whole."""

    alert_id: str
    step: Step
    at: int
    alert: Alert | None = None


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """How all rules stand, by rule and what it looks at; news that nobody has passed on for sure; and what
    the server had thrown away when it was last looked at."""

    standings: dict[str, Standing] = {}
    notices: tuple[Notice, ...] = ()
    evicted: int | None = None


class Kept(NamedTuple, Generic[T]):
    """Something as it is stored; `revision` is what its next writer must have seen."""

    value: T
    revision: int


class Records(Generic[T]):
    """The documents of one kind. With `rewrites` a change that changes nothing is written all the same: it
    encrypts with the newest key."""

    def __init__(self, kind: str, shape: Any, *, rewrites: bool = False) -> None:
        self.kind = kind
        self._rewrites = rewrites
        self._decode: Callable[[str], T] = msgspec.json.Decoder(shape).decode

    def all(self, reader: Reader) -> dict[str, Kept[T]]:
        """By name. What cannot be read is left out with a line in the log; a later release may have written
        it."""
        found: list[Document] = []
        while True:
            page = reader.documents(self.kind, limit=PAGE, after=found[-1].name if found else None)
            found += page
            if len(page) < PAGE:
                return self._readable(found)

    def some(self, reader: Reader, names: list[str]) -> dict[str, Kept[T]]:
        """Those that are named."""
        return self._readable(reader.documents(self.kind, names, limit=len(names))) if names else {}

    def get(self, reader: Reader, name: str) -> Kept[T] | None:
        return self.some(reader, [name]).get(name)

    def get_or(self, reader: Reader, name: str, instead: T) -> Kept[T]:
        """One, or something else to begin with: also in the place of one that cannot be read."""
        found = reader.documents(self.kind, [name], limit=1)
        return self._readable(found).get(name) or Kept(instead, found[0].revision if found else 0)

    def save(
        self, store: Store, name: str, value: T, revision: int = 0, *, event: Event | None = None
    ) -> bool:
        """Write what was worked out from this revision; false if there is another by now."""
        body = msgspec.json.encode(value).decode()
        document = Document(kind=self.kind, name=name, body=body, revision=revision)
        return store.save_document(document, event=event)

    def change(
        self, store: Store, reader: Reader, name: str, change: Callable[[Kept[T] | None], tuple[T, Event]]
    ) -> T:
        """Work a change out from what is stored, again while somebody else is faster."""
        for _ in range(TRIES):
            found = reader.documents(self.kind, [name], limit=1)
            kept = self._readable(found).get(name)
            value, event = change(kept)
            if kept is not None and kept.value == value and not self._rewrites:
                return value
            # Also in the place of one that cannot be read.
            if self.save(store, name, value, found[0].revision if found else 0, event=event):
                return value
        raise StoreUnavailable(f"{self.kind} {name} is changed by others again and again; try again later")

    def _readable(self, documents: list[Document]) -> dict[str, Kept[T]]:
        found = {}
        for one in documents:
            try:
                found[one.name] = Kept(self._decode(one.body), one.revision)
            except ValueError as exc:
                logger.warning("%s %s cannot be read: %s", self.kind, one.name, exc)
        return found


RULES: Final = Records[Rule](RULE, Rule)
ALERTS: Final = Records[Alert](ALERT, Alert)
CHANNELS: Final = Records[Channel](CHANNEL, Channel, rewrites=True)
BOARDS: Final = Records[Board](BOARD, Board)


def all_rules(reader: Reader) -> dict[str, Rule]:
    """By id: the usual ones as somebody has changed them, and those that somebody has made."""
    return dict(
        sorted({**USUAL_RULES, **{name: one.value for name, one in RULES.all(reader).items()}}.items())
    )


def told(actor: str, what: str, changes: Changes | Mapping[str, tuple[Any, Any]] | None = None) -> Event:
    """The line in the audit log."""
    return Event(kind=EventKind.ALERT, actor=actor, detail=what, changes=dict(changes or {}))
