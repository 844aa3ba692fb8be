"""The diagram of the states is the table of moves."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.domain.lifecycle import TRANSITIONS, JobState

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "states.md"
EDGE = re.compile(r"^\s+(\S+) --> (\w+): [\w ]+$", re.MULTILINE)
NEW = {("[*]", state) for state in ("pending", "scheduled", "blocked")}


def drawn() -> list[tuple[str, str]]:
    [diagram] = re.findall(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return EDGE.findall(diagram)


def test_the_diagram_draws_every_legal_move_and_no_other() -> None:
    legal = {(old.value, new.value) for old, news in TRANSITIONS.items() for new in news}

    assert set(drawn()) == legal | NEW


def test_the_diagram_draws_each_move_once() -> None:
    assert len(drawn()) == len(set(drawn()))


def test_the_page_explains_every_state() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert explained == [state.value for state in JobState]
