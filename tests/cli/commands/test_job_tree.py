"""What depends on what, on the command line."""

from __future__ import annotations

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import JobId, OnFailure
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, put, refusal


@pytest.fixture
def diamond(store: Store) -> list[JobId]:
    a = put(store, 1)
    b = put(store, 2, depends_on=dependencies_of([a]))
    c = put(store, 3, depends_on=dependencies_of([a], OnFailure.HOLD))
    return [a, b, c, put(store, 4, depends_on=dependencies_of([b, c]))]


@pytest.mark.shows("R-DEP-10")
def test_a_job_is_shown_with_its_parents_and_dependants(diamond: list[JobId]) -> None:
    a, b, c, d = diamond

    shown = answer("jobs", "show", c)

    assert shown["depends_on"] == [{"id": a, "edge": "open", "on_failure": "hold"}]
    assert shown["dependants"] == [{"id": d, "edge": "open", "on_failure": "cancel"}]
    words = call("jobs", "show", d).stdout
    assert "Depends on" in words
    assert b in words
    assert "Dependants" in call("jobs", "show", a).stdout


def test_a_tree_shows_what_depends_on_a_job(diamond: list[JobId]) -> None:
    a, b, c, d = diamond

    tree = answer("jobs", "tree", a)

    assert (tree["id"], tree["state"], tree["is_complete"]) == (a, "pending", True)
    assert sorted(each["id"] for each in tree["dependants"]) == sorted([b, c])
    joins = [each["dependants"][0] for each in tree["dependants"]]
    assert {each["id"] for each in joins} == {d}
    assert [each.get("again", False) for each in joins] == [False, True]
    lines = call("jobs", "tree", a).stdout.splitlines()
    assert lines[0].startswith(a)
    assert lines[1].startswith("  ")
    assert sum("see above" in line for line in lines) == 1


def test_a_tree_can_be_looked_at_from_below_and_be_cut(diamond: list[JobId]) -> None:
    a, b, c, d = diamond

    up = answer("jobs", "tree", d, "--up")
    cut = answer("jobs", "tree", a, "--limit", "2")

    assert [each["id"] for each in up["depends_on"]] == [b, c]
    assert cut["is_complete"] is False
    assert "The graph is larger" in call("jobs", "tree", a, "--limit", "2").stdout
    assert "no job absent" in refusal("jobs", "tree", "absent")["message"]


@pytest.mark.shows("R-CANCEL-08")
def test_jobs_are_cancelled_and_revived_with_what_depends_on_them(store: Store, diamond: list[JobId]) -> None:
    a, _, c, d = diamond

    call("jobs", "cancel", a, "--dependants", "--yes")
    assert [answer("jobs", "show", each)["state"] for each in (a, c, d)] == ["cancelled"] * 3
    call("jobs", "revive", a, "--dependants", "--yes")

    assert [answer("jobs", "show", each)["state"] for each in (a, c, d)] == ["pending", "blocked", "blocked"]
    assert "works only with ids" in refusal("jobs", "cancel", "--all", "--dependants")["message"]
    assert "works only with ids" in refusal("jobs", "revive", "--all", "--dependants")["message"]
