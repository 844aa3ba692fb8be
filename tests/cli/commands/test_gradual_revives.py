"""`forebay ramps`: dead letters come back in batches."""

from __future__ import annotations

from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.operations.gradual_revive import advance_gradual_revives, stop_gradual_revive
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.calling import answer, call, make, refusal
from tests.stores.contract import steps
from tests.worker.support import eventually

PACE = ("--first", "1", "--factor", "3", "--most", "50", "--every", "5s", "--stop-percent", "10")


def test_a_ramp_is_started_for_a_group_and_steered(store: Store, reader: Reader) -> None:
    ids = [make(store, JobState.DEAD) for _ in range(2)]
    [group] = answer("dead", "groups")["groups"]

    ramp = answer("ramps", "start", "--group", group["id"], *PACE, "--yes")
    name = ramp["name"]

    assert (ramp["state"], ramp["group"], ramp["query"]) == ("running", group["id"], {"states": ["dead"]})
    assert ramp["pace"] == {"first": 1, "factor": 3, "most": 50, "every_ms": 5_000, "stop_percent": 10}
    eventually(lambda: advance_gradual_revives(store, reader) and answer("ramps", "show", name)["revived"])
    shown = answer("ramps", "show", name)
    assert (shown["batches"], shown["revived"], shown["waiting"]) == (1, 1, 1)
    assert steps.states(reader, ids).count(JobState.PENDING) == 1
    assert answer("ramps", "pause", name)["state"] == "paused"
    assert refusal("ramps", "pause", name)["status"] == 5
    assert answer("ramps", "resume", name)["state"] == "running"
    assert answer("ramps", "stop", name)["reason"] == "by hand"
    assert [one["name"] for one in answer("ramps", "list")["ramps"]] == [name]
    assert refusal("ramps", "show", "nobody")["status"] == 4


def test_people_read_how_far_a_ramp_is(store: Store, reader: Reader) -> None:
    make(store, JobState.DEAD)

    said = call("ramps", "start", "--queue", "default", "--yes").stdout
    name = said.split()[1]

    assert f"see `forebay ramps show {name}`" in said
    assert "not ended yet" in call("ramps", "show", name).stdout
    assert name in call("ramps", "list").stdout
    for verb, past in (("pause", "paused"), ("resume", "goes on"), ("stop", "stopped")):
        assert call("ramps", verb, name).stdout == f"ramp {name} {past}\n"


def test_who_waits_sees_it_end_and_hears_by_the_status_whether_all_came_back(
    store: Store, reader: Reader
) -> None:
    name = answer("ramps", "start", "--all", "--yes")["name"]
    eventually(lambda: not advance_gradual_revives(store, reader))

    assert answer("ramps", "show", name, "--wait")["state"] == "completed"

    other = answer("ramps", "start", "--task", "t", "--yes")["name"]
    stop_gradual_revive(store, reader, other)
    assert call("ramps", "show", other, "--wait").exit_code == 1


def test_a_ramp_needs_conditions_and_a_yes(store: Store, reader: Reader) -> None:
    make(store, JobState.DEAD)

    assert refusal("ramps", "start", "--yes")["status"] == 2
    assert refusal("ramps", "start", "--all")["status"] == 2
    assert refusal("ramps", "start", "--all", "--every", "1ms", "--yes")["status"] == 2
    assert answer("ramps", "list")["ramps"] == []
    assert reader.search(JobQuery(states=(JobState.PENDING,))).jobs == ()
