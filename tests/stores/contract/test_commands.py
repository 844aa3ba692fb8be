"""Commands: what workers are asked to do through the store, given to each once and in time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.domain.job import WorkerId
from forebay.domain.job_history import Event, EventKind
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import COMMAND_EXPIRES_MS, MAX_RESPONSE, Command, CommandKind
from forebay.errors import InvalidJob, StoreRefused, WorkerNotFound
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, HOUR, MAIL, SECOND, T0, W1, W2, W3, together

PAUSE, STOP, STACKS = CommandKind.PAUSE, CommandKind.STOP, CommandKind.STACKS


@pytest.fixture(autouse=True)
def listed(store: Store) -> None:
    """Two workers are on the list, the second one for longer."""
    store.heartbeat(WorkerInfo(id=W1))
    store.heartbeat(WorkerInfo(id=W2, started_at=T0 - 1))


def test_a_command_tells_all_about_itself(store: Store, reader: Reader, clock: ManualClock) -> None:
    clock.advance(ms=3)

    [command] = store.send_command(PAUSE, [W1], queue=MAIL, expires_ms=5_000, actor="ann")

    assert command == Command(
        id=command.id,
        worker=W1,
        kind=PAUSE,
        queue=MAIL,
        actor="ann",
        sent_at=T0 + 3,
        expires_at=T0 + 5_003,
    )
    assert reader.commands([command.id]) == [command]


def test_a_command_is_good_for_30_seconds_unless_asked_otherwise(store: Store) -> None:
    [command] = store.send_command(STOP, [W1])

    assert COMMAND_EXPIRES_MS == 30_000
    assert (command.expires_at, command.queue, command.actor) == (T0 + 30_000, None, "")


def test_each_worker_gets_a_command_of_its_own_in_the_order_asked(store: Store) -> None:
    commands = store.send_command(STOP, [W1, W2])

    assert [command.worker for command in commands] == [W1, W2]
    assert len({command.id for command in commands}) == 2


def test_without_names_all_workers_on_the_list_are_asked_by_start(store: Store) -> None:
    assert [command.worker for command in store.send_command(STOP)] == [W2, W1]


def test_no_worker_is_asked_if_none_is_named_or_listed(store: Store, reader: Reader) -> None:
    named = store.send_command(STOP, [])
    store.remove_worker(W1)
    store.remove_worker(W2)

    assert (named, store.send_command(STOP)) == ([], [])
    assert reader.audit() == []


@pytest.mark.parametrize("names", [[W3], [W1, W3], [W3, W1]])
def test_a_worker_that_is_not_on_the_list_is_named_and_no_worker_is_asked(
    store: Store, reader: Reader, names: list[WorkerId]
) -> None:
    with pytest.raises(WorkerNotFound, match="there is no worker w3; see the list with `forebay workers`"):
        store.send_command(STOP, names)

    assert store.take_commands([W1, W2, W3]) == []
    assert reader.audit() == []


def test_a_queue_that_cannot_be_one_is_refused(store: Store) -> None:
    with pytest.raises(InvalidJob):
        store.send_command(PAUSE, [W1], queue="no name!")  # type: ignore[arg-type]

    assert store.take_commands([W1]) == []


def test_an_actor_that_cannot_be_written_is_refused_and_no_worker_is_asked(store: Store) -> None:
    with pytest.raises(StoreRefused):
        store.send_command(STOP, [W1, W2], actor="\ud800")

    assert store.take_commands([W1, W2]) == []


def test_each_command_leaves_an_event_that_says_who_asked_whom_for_what(store: Store, reader: Reader) -> None:
    store.send_command(PAUSE, [W1, W2], queue=MAIL, actor="ann")

    assert [event for _, event in reader.audit()] == [
        Event(kind=EventKind.WORKER_COMMAND, occurred_at=T0, queue=MAIL, actor="ann", detail="pause w2"),
        Event(kind=EventKind.WORKER_COMMAND, occurred_at=T0, queue=MAIL, actor="ann", detail="pause w1"),
    ]


# Taking


@pytest.mark.shows("R-WORK-44")
def test_a_command_is_given_to_its_worker_once(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock
) -> None:
    [command] = store.send_command(STOP, [W1])
    clock.advance(ms=7)

    others = other_store.take_commands([W2])
    first = other_store.take_commands([W1])
    again = [*store.take_commands([W1]), *other_store.take_commands([W1, W2])]

    taken = replace(command, delivered_at=T0 + 7)
    assert (others, first, again) == ([], [taken], [])
    assert reader.commands([command.id]) == [taken]


def test_commands_come_oldest_first_for_all_workers_that_are_named(
    store: Store, other_store: Store, clock: ManualClock
) -> None:
    sent = [*store.send_command(PAUSE, [W2]), *other_store.send_command(STACKS, [W1])]
    clock.advance(ms=1)
    sent += store.send_command(STOP, [W2, W1])

    taken = store.take_commands([W1, W2])

    assert [command.id for command in taken] == [command.id for command in sent]


def test_nothing_is_given_where_no_command_was_sent(store: Store) -> None:
    store.send_command(STOP)

    assert store.take_commands([]) == []


@pytest.mark.shows("R-WORK-44")
def test_a_command_is_given_until_it_expires_and_not_after(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.send_command(STOP, [W1])
    late = store.send_command(STOP, [W2])
    clock.advance(ms=29_999)
    in_time = store.take_commands([W1])
    clock.advance(ms=1)

    assert [command.worker for command in in_time] == [W1]
    assert store.take_commands([W2]) == []
    assert reader.commands([late[0].id]) == late


def test_an_expired_command_does_not_hide_a_later_one(store: Store, clock: ManualClock) -> None:
    store.send_command(STOP, [W1], expires_ms=SECOND)
    clock.advance(ms=SECOND)
    [later] = store.send_command(STACKS, [W1])

    assert [command.id for command in store.take_commands([W1])] == [later.id]


def test_of_many_that_look_at_once_one_gets_the_command(engine: Engine, store: Store) -> None:
    store.send_command(STOP, [W1])

    answers = together(engine, [lambda handle: handle.take_commands([W1])] * 8)

    assert sorted(map(len, answers)) == [0] * 7 + [1]


# Answers


def test_an_answer_is_kept_with_its_command_and_the_last_one_counts(store: Store, reader: Reader) -> None:
    first, second = store.send_command(STACKS, [W1, W2])
    store.take_commands([W1])

    store.answer_command(first.id, "one")
    store.answer_command(first.id, "größer\x00")

    answers = [command and command.response for command in reader.commands([first.id, second.id])]
    assert answers == ["größer␀", None]


def test_an_answer_to_a_command_that_is_gone_does_nothing(store: Store, reader: Reader) -> None:
    store.answer_command("absent", "hello")

    assert reader.commands(["absent"]) == [None]


@pytest.mark.parametrize(("sign", "kept"), [("x", MAX_RESPONSE), ("ö", MAX_RESPONSE // 2)])
def test_an_answer_is_cut_to_64_kib(store: Store, reader: Reader, sign: str, kept: int) -> None:
    [command] = store.send_command(STACKS, [W1])

    store.answer_command(command.id, sign * 70_000)

    [found] = reader.commands([command.id])
    assert found is not None
    assert found.response == sign * kept


def test_commands_are_read_in_the_order_asked(store: Store, reader: Reader) -> None:
    first, second = store.send_command(STOP, [W1, W2])

    assert reader.commands([second.id, "absent", first.id]) == [second, None, first]


# How long they are kept


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_command_is_forgotten_an_hour_after_it_expired(
    store: Store, reader: Reader, clock: ManualClock, is_taken: bool
) -> None:
    [command] = store.send_command(STOP, [W1])
    if is_taken:
        store.take_commands([W1])
        store.answer_command(command.id, "done")
    clock.advance(ms=COMMAND_EXPIRES_MS + HOUR - 1)
    store.prune()
    kept = reader.commands([command.id])
    clock.advance(ms=1)

    store.prune()

    assert kept != [None]
    assert reader.commands([command.id]) == [None]


def test_a_worker_that_ends_leaves_its_commands(store: Store, reader: Reader) -> None:
    [command] = store.send_command(STOP, [W1])

    store.remove_worker(W1)

    assert reader.commands([command.id]) == [command]


def test_a_paused_queue_is_not_made_by_its_name(store: Store, reader: Reader) -> None:
    store.send_command(PAUSE, [W1], queue=DEFAULT)

    assert reader.queues() == []
