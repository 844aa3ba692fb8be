"""Old queues on the server of the tests, in a database of their own; and stores that their jobs come to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from forebay import Forebay
from tests.cli.command_runner import call
from tests.importers import shop
from tests.stores.redis_support import server

DATABASE: Final = 9
PLACE: Final = "tests.importers.shop"
DEADLINE: Final = 120.0


def old_url() -> str:
    return server().url(DATABASE)


def bring(*words: str, status: int = 0) -> dict[str, Any]:
    """What `forebay import` answers; it must end like this."""
    result = call("import", *words, "--json")
    assert result.exit_code == status, (result.exit_code, result.output, result.exception)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def shop_app(url: str, **options: Any) -> Forebay:
    """An app of ours that knows the functions of the shop, under the names that the old queue has."""
    app = Forebay(url)
    functions: Sequence[Callable[..., Any]] = (shop.add, shop.mail, shop.fail)
    for function in functions:
        app.task(name=f"{PLACE}.{function.__name__}", retries=0, **options)(function)
    return app


def ran(app: Forebay, queues: Sequence[str], ids: Sequence[str]) -> list[Any]:
    """What these jobs return when a worker runs them."""
    with app.run_worker(queues=list(queues), threads=2):
        return [app.job(each).result(timeout=DEADLINE) for each in ids]


def until(found: Callable[[], object]) -> None:
    """Wait for something that another thread or process does."""
    ends = time.monotonic() + DEADLINE
    while not found():
        assert time.monotonic() < ends
        time.sleep(0.01)
