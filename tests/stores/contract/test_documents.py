"""Documents: kept as they are, changed by a writer that saw the last one; an event comes true with them."""

from __future__ import annotations

import pytest

from forebay.domain.job_history import Event, EventKind
from forebay.domain.stored_document import MAX_BODY, Document
from forebay.errors import ConfigError
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import T0, together

BODY = '{"a": "ü \\u0000"}'
SAVED = Event(
    kind=EventKind.API_KEY_CHANGED, actor="ann#r1", detail="created a", changes={"roles": (None, ["view", 1])}
)


def document(name: str = "a", body: str = BODY, revision: int = 0, kind: str = "thing") -> Document:
    return Document(kind=kind, name=name, body=body, revision=revision)


def test_a_document_is_kept_with_its_times_and_its_event(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    assert store.save_document(document(), event=SAVED)
    clock.advance(ms=5)
    assert store.save_document(document(body="{}", revision=1))

    [found] = reader.documents("thing")
    assert (found.name, found.body, found.revision) == ("a", "{}", 2)
    assert (found.created_at, found.updated_at) == (T0, T0 + 5)
    [(_, event)] = reader.audit()
    assert (event.occurred_at, event.kind, event.actor_name, event.request_id) == (
        T0,
        EventKind.API_KEY_CHANGED,
        "ann",
        "r1",
    )
    assert (event.detail, event.changes) == ("created a", {"roles": (None, ["view", 1])})


@pytest.mark.parametrize("revision", [0, 2])
def test_who_has_not_seen_the_last_one_changes_nothing(store: Store, reader: Reader, revision: int) -> None:
    store.save_document(document())

    assert not store.save_document(document(body="{}", revision=revision), event=SAVED)
    assert not store.save_document(document("b", revision=1), event=SAVED)

    assert [one.body for one in reader.documents("thing")] == [BODY]
    assert reader.audit() == []


def test_of_several_who_change_one_at_once_one_succeeds(engine: Engine, store: Store, reader: Reader) -> None:
    store.save_document(document())

    done = together(
        engine,
        [
            lambda one: one.save_document(document(body="1", revision=1), event=SAVED),
            lambda one: one.save_document(document(body="2", revision=1), event=SAVED),
            lambda one: one.save_document(document("new")),
            lambda one: one.save_document(document("new")),
        ],
    )

    assert sorted(done[:2]) == sorted(done[2:]) == [False, True]
    assert [one.revision for one in reader.documents("thing")] == [2, 1]
    assert len(reader.audit()) == 1


def test_documents_are_listed_by_kind_and_name_page_by_page(store: Store, reader: Reader) -> None:
    for name in ("b", "d", "a", "ü"):
        store.save_document(document(name))
    store.save_document(document("c", kind="rule"))

    assert [one.name for one in reader.documents("thing", limit=2)] == ["a", "b"]
    assert [one.name for one in reader.documents("thing", limit=9, after="b")] == ["d", "ü"]
    assert [one.name for one in reader.documents("thing", ["ü", "c", "a"])] == ["a", "ü"]
    assert [one.name for one in reader.documents("rule")] == ["c"]
    assert reader.documents("thing", []) == reader.documents("other") == []
    with pytest.raises(ConfigError):
        reader.documents("thing", limit=0)


def test_a_removed_document_is_gone_and_its_name_is_free(store: Store, reader: Reader) -> None:
    store.save_document(document())

    assert store.drop_document("thing", "a", event=SAVED) is True
    assert store.drop_document("thing", "a", event=SAVED) is False

    assert reader.documents("thing") == []
    assert len(reader.audit()) == 1
    assert store.save_document(document())


def test_the_longest_text_is_kept_whole(store: Store, reader: Reader) -> None:
    longest = "é\x01" + "é" * (MAX_BODY // 2 - 2) + "\n"

    assert store.save_document(document(body=longest))

    [kept] = reader.documents("thing")
    assert (kept.body, len(longest.encode())) == (longest, MAX_BODY)
