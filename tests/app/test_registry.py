"""Which function runs which job."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from forebay import Forebay
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


def test_a_task_that_nobody_registered_is_named(app: Forebay) -> None:
    with pytest.raises(UnknownTask, match="no task is called 'buy' in this program"):
        app.registry["buy"]

    assert "buy" not in app.registry


def test_a_result_gets_the_class_that_its_task_names(app: Forebay) -> None:
    assert app.registry.returned("sell", {"total": 3}) == Receipt(3)


def test_the_result_of_an_unknown_task_stays_as_it_was_stored(app: Forebay) -> None:
    assert app.registry.returned("buy", {"total": 3}) == {"total": 3}
