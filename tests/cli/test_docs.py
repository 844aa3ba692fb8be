"""The page about the command line does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from forebay.cli.commands.queues import setting_names
from forebay.domain.api_key import Grant
from forebay.domain.login_session import LoginSession, SessionLimits
from forebay.service.browser_sessions import SessionAdmin
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, program, working

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "guide" / "command-line.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def guide_folder(folder: Path) -> Path:
    """A folder as the page describes it."""
    [tasks], [settings] = blocks("python"), blocks("toml")
    (folder / "tasks.py").write_text(tasks)
    (folder / "forebay.toml").write_text(settings)
    return folder


def run_block(folder: Path, block: str) -> None:
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ forebay "))
        result = program(folder, *words)
        assert (result.returncode, result.stderr) == (0, ""), (line, result.stdout)


def test_the_commands_of_the_guide_work_in_their_order(guide_folder: Path) -> None:
    enqueue, look, control, dead, trouble = blocks("console")

    run_block(guide_folder, enqueue)
    run_block(guide_folder, look)
    run_block(guide_folder, control)
    with working(guide_folder):
        assert program(guide_folder, "jobs", "wait", "unlucky", "--timeout", "100s").returncode == 1
        assert program(guide_folder, "jobs", "wait", "grace", "--timeout", "100s").returncode == 0
    run_block(guide_folder, dead)
    with working(guide_folder):
        program(guide_folder, "jobs", "wait", "unlucky", "--timeout", "100s")
        run_block(guide_folder, trouble)


def test_the_commands_of_the_page_about_security_work_in_their_order(store: Store, reader: Reader) -> None:
    begun = LoginSession.begin("ops", reader.now(), SessionLimits(), grants=(Grant.parse("view"),))
    SessionAdmin(store, reader, actor="ann").begin(begun)
    [session] = answer("sessions", "list")["sessions"]
    page = (DOCS / "guide" / "security.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ forebay (.*)$", page, flags=re.MULTILINE)

    done = [call(*shlex.split(line.replace("5f2c9a1be07d4436", session["id"]))) for line in lines]

    assert [(line, one.output) for line, one in zip(lines, done, strict=True) if one.exit_code] == []
    assert len(done) > 12


def test_the_reference_names_every_setting_of_a_queue() -> None:
    page = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")

    assert [name for name in setting_names() if f"`{name}`" not in page] == []
