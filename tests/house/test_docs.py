"""The reference of promised names is whole, and what it names exists."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import pytest

import forebay
from forebay import Forebay, JobHandle, RetryPolicy, errors
from forebay.app.consumer import Consumer
from forebay.app.job_context import JobContext
from forebay.app.schedules import Schedules
from forebay.app.task import ConfiguredTask
from forebay.domain.retry_policy import PRESETS, Curve
from tests.docs.pages import fenced, pages, text

PAGE = text("reference/api.md")
# Parts of objects of ours that are not promised to those who hold them.
OURS = {
    "Forebay": {"clock"},
    "Consumer": {"after_fork"},
    "JobContext": {
        "client",
        "follow_ups",
        "is_completed_in_tx",
        "mark_cancelled",
        "mark_lease_in_doubt",
        "mark_lease_lost",
        "mark_lease_regained",
        "mark_past_soft_timeout",
        "mark_renewed",
        "progress_sink",
    },
}
KINDS = [Forebay, JobHandle, ConfiguredTask, JobContext, Consumer, Schedules, RetryPolicy]


def promised(kind: type) -> list[str]:
    hidden = OURS.get(kind.__name__, set())
    return [name for name in vars(kind) if not name.startswith("_") and name not in hidden]


@pytest.mark.parametrize("name", forebay.__all__)
def test_every_promised_name_is_on_the_page(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_everything_that_a_promised_object_can_do_is_on_the_page(kind: type) -> None:
    assert [name for name in promised(kind) if not re.search(rf"`(\w+\.)?{name}\b", PAGE)] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_signatures_on_the_page_have_the_parameters_of_the_code(kind: type) -> None:
    for name in promised(kind):
        member: Any = getattr(kind, name)
        if not inspect.isfunction(member) or name.endswith("_async"):
            continue
        [signature] = re.findall(rf"`{kind.__name__}\.{name}\(([^`]*)\)`", PAGE)
        assert words(signature) == [*inspect.signature(member).parameters][1:], name


def words(signature: str) -> list[str]:
    """The names of the parameters in a signature as it is printed."""
    parts = [part.split("=")[0].strip(" *") for part in signature.split(", ")]
    return [part for part in parts if part not in ("", "/")]


@pytest.mark.parametrize("kind", [Forebay, RetryPolicy], ids=lambda kind: kind.__name__)
def test_what_a_promised_object_is_made_of_is_on_the_page(kind: type) -> None:
    hidden = OURS.get(kind.__name__, set())
    names = [name for name in inspect.signature(kind).parameters if name not in hidden]

    assert [name for name in names if not re.search(rf"\b{name}\b", PAGE)] == []


def test_every_error_is_on_the_page() -> None:
    names = [name for name, kind in vars(errors).items() if inspect.isclass(kind)]

    assert [name for name in names if f"`{name}" not in PAGE] == []


def test_the_other_promised_names_can_be_imported_from_where_the_page_says() -> None:
    rows = re.findall(r"^\| `(forebay\.[\w.]+)` \| ([^|]+) \|", PAGE, flags=re.MULTILINE)
    names = [(module, name) for module, cell in rows for name in re.findall(r"`(\w+)`", cell)]

    assert len(names) > 20
    assert [pair for pair in names if not hasattr(import_module(pair[0]), pair[1])] == []


# The guide


@pytest.mark.parametrize("name", [*RetryPolicy.__struct_fields__, *Curve, *PRESETS])
def test_the_page_about_retries_names_every_field_curve_and_preset(name: str) -> None:
    assert re.search(rf"^\| (`\w+`, )*`{name}`.* \|", text("guide/retries.md"), flags=re.MULTILINE)


@pytest.mark.shows("R-JOB-60")
def test_the_page_about_tasks_says_what_delivery_at_least_once_asks_of_them() -> None:
    page = " ".join(text("guide/tasks.md").split())

    assert "No queue can avoid that." in page
    assert "running it twice must do no harm. Such a task is idempotent." in page


def test_every_page_of_the_guide_is_on_its_list() -> None:
    listed = text("guide/README.md")
    names = [page.removeprefix("guide/") for page in pages() if page.startswith("guide/")]

    assert [name for name in names if name != "README.md" and f"]({name})" not in listed] == []


# How the pages are read


def test_a_block_ends_where_it_is_closed_whatever_its_language() -> None:
    found = fenced("a\n```console\n$ b\n```\nc\n```\nd\n\n```\n~~~python\n```\n~~~\n")

    assert found == [(2, "console", "$ b\n"), (6, "", "d\n\n"), (10, "python", "```\n")]


def test_a_block_that_is_never_closed_is_a_block() -> None:
    assert [block.language for block in fenced("```python\nx = 1\n")] == ["python"]
