"""Which function runs which job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from forebay import ConfigError, Forebay, InvalidJob
from forebay.errors import UnknownTask


@dataclass(frozen=True)
class Receipt:
    total: int


def sell(total: int) -> Receipt:
    return Receipt(total)


@pytest.fixture
def app() -> Forebay:
    app = Forebay("memory://")
    app.task(name="sell")(sell)
    return app


def test_tasks_are_found_by_name(app: Forebay) -> None:
    assert app.registry["sell"].func is sell
    assert "sell" in app.registry
    assert list(app.registry) == ["sell"]


def test_a_task_that_is_not_registered_is_named(app: Forebay) -> None:
    with pytest.raises(UnknownTask, match="no task is called 'buy' in this program"):
        app.registry["buy"]

    assert "buy" not in app.registry


def test_a_result_gets_the_class_that_its_task_names(app: Forebay) -> None:
    assert app.registry.coerce_result("sell", {"total": 3}) == Receipt(3)


def test_the_result_of_an_unknown_task_stays_as_it_was_stored(app: Forebay) -> None:
    assert app.registry.coerce_result("buy", {"total": 3}) == {"total": 3}


def test_a_task_is_found_by_its_old_names_too(app: Forebay) -> None:
    task = app.task(name="shop.buy", aliases=["buy", "old.buy"])(lambda: None)

    assert [app.registry[name] for name in ("shop.buy", "buy", "old.buy")] == [task, task, task]
    assert list(app.registry) == ["sell", "shop.buy", "buy", "old.buy"]
    assert repr(app) == "<Forebay on memory, 2 tasks>"


def test_an_alias_that_is_taken_is_refused_with_both_places_and_nothing_is_registered(app: Forebay) -> None:
    with pytest.raises(
        ConfigError,
        match=r"are called 'sell': .*test_registry\.sell and .*lambda> \(an alias of 'buy'\)",
    ):
        app.task(name="buy", aliases=["old.buy", "sell"])(lambda: None)

    assert list(app.registry) == ["sell"]


def test_a_name_that_is_an_alias_already_is_refused(app: Forebay) -> None:
    app.task(name="buy", aliases=["old.buy"])(lambda: None)

    with pytest.raises(ConfigError, match=r"\(an alias of 'buy'\) and .*lambda>; give one of them another"):
        app.task(name="old.buy")(lambda: None)


@pytest.mark.parametrize(("aliases", "words"), [("buy", r"aliases=\['buy'\]"), (7, "list of names")])
def test_aliases_that_are_no_list_are_refused(app: Forebay, aliases: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        app.task(name="shop.buy", aliases=aliases)


@pytest.mark.parametrize("alias", ["", 7, "a\x00b"])
def test_an_alias_that_can_be_no_name_is_refused(app: Forebay, alias: Any) -> None:
    with pytest.raises(InvalidJob, match="task"):
        app.task(name="shop.buy", aliases=[alias])


def test_jobs_of_an_old_name_are_run_by_the_task_of_today(live_app: Forebay) -> None:
    old = live_app.enqueue("old.double", [4])  # before the deploy: this program does not know it
    double = live_app.task(name="double", aliases=["old.double"])(lambda number: number * 2)

    with live_app.run_worker(threads=1):
        assert old.result(timeout=120) == 8
        by_alias = live_app.enqueue("old.double", [5])
        assert by_alias.result(timeout=120) == 10

    assert (old.refresh().task, by_alias.refresh().task) == ("old.double", double.name)
