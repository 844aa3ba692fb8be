"""The diagram of the states is the table of moves."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from forebay.domain.job_states import TRANSITIONS, JobState
from tools.states_picture import picture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "states.md"
EDGE = re.compile(r"^\s+(\S+) --> (\w+): [\w ]+$", re.MULTILINE)
NEW = {("[*]", state) for state in ("pending", "scheduled", "blocked")}


def drawn() -> list[tuple[str, str]]:
    [diagram] = re.findall(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return EDGE.findall(diagram)


def test_the_diagram_draws_every_legal_move_and_no_other() -> None:
    legal = {(old.value, new.value) for old, targets in TRANSITIONS.items() for new in targets}

    assert set(drawn()) == legal | NEW


def test_the_diagram_draws_each_move_once() -> None:
    assert len(drawn()) == len(set(drawn()))


def test_the_page_explains_every_state() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert explained == [state.value for state in JobState]


# The picture of it, for the site


def diagram() -> str:
    [found] = re.findall(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def test_the_picture_shows_every_state_and_names_every_move() -> None:
    shown = ElementTree.fromstring(picture(diagram()))  # noqa: S314 - it is our own
    words = {text.text for text in shown.iter("{http://www.w3.org/2000/svg}text")}

    assert {state.value for state in JobState} <= words
    assert set(re.findall(r": ([\w ]+)$", diagram(), re.MULTILINE)) <= words


@pytest.mark.parametrize(
    ("less", "fault"),
    [
        ("    retrying --> cancelled: cancel\n", "not every waiting state can cancel"),
        ("    dead --> blocked: revive\n", "does not lead to where it did"),
        ("    pending --> running: claim\n", "no way, or one too many, for .*'pending', 'running'"),
    ],
)
def test_a_picture_that_would_say_something_else_is_refused(less: str, fault: str) -> None:
    assert less in diagram()

    with pytest.raises(ValueError, match=fault):
        picture(diagram().replace(less, ""))
