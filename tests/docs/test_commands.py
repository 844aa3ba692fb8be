"""Commands that pages speak of, without a block that is run: they exist, and so do their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import ConfigParser

import click
import pytest

from forebay.cli.main import main
from tests.docs.pages import ROOT, blocks, text
from tests.docs.pages import pages as documents
from tools.reference_pages.command_line import commands

ALL = commands()
# Between backquotes in prose, or alone in a line that is indented as code.
_INLINE = re.compile(r"`forebay ([^`]+)`")
_INDENTED = re.compile(r"^ {4,}(?:\$ )?(?:python -m )?forebay (.+)$", re.MULTILINE)


def wrong(words: str) -> str:
    """What is wrong with a command; empty if nothing is."""
    command: click.Command = main
    name = "forebay"
    for word in shlex.split(words.partition(" | ")[0].rstrip("\\"), comments=True):
        if f"{name} {word}" in ALL:
            name = f"{name} {word}"
            command = ALL[name]
        elif isinstance(command, click.Group) and word.isalpha() and word.islower() and command is not main:
            return f"{name} has no command {word}"
        elif word.startswith("--") and word.partition("=")[0] not in options_of(command):
            return f"{name} has no option {word}"
    return "" if command is not main or words.startswith("-") else "there is no such command"


def options_of(command: click.Command) -> set[str]:
    named = {one for param in command.params for one in (*param.opts, *param.secondary_opts)}
    return {*named, "--help", "--version"}


def found(page: str) -> Iterator[str]:
    source = text(page)
    yield from (" ".join(one.split()) for one in _INLINE.findall(source))
    yield from _INDENTED.findall(source)


@pytest.mark.parametrize("page", [page for page in documents() if page != "internals/requirements.md"])
def test_the_commands_that_a_page_speaks_of_exist(page: str) -> None:
    complaints = {command: wrong(command) for command in found(page) if not is_general(command)}

    assert {command: fault for command, fault in complaints.items() if fault} == {}


def is_general(command: str) -> bool:
    """Whether it stands for any command, or for none: the page about payloads has a text that is hashed."""
    return command.split(maxsplit=1)[0] in ("COMMAND", "...", "…") or command == "key"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("jobs list --queue mail", ""),
        ("jobs lits", "forebay jobs has no command lits"),
        ("worker shop:app --process 4", "forebay worker has no option --process"),
        ("jobz", "there is no such command"),
        ("--version", ""),
    ],
)
def test_what_is_wrong_is_told(words: str, fault: str) -> None:
    assert wrong(words) == fault


def test_the_unit_for_systemd_starts_a_worker_and_leaves_it_time_to_stop() -> None:
    [unit] = blocks("guide/workers.md", "ini")
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are as they are written
    parser.read_string(unit)
    program, *words = shlex.split(parser["Service"]["ExecStart"])

    assert program.endswith("/bin/forebay")
    assert wrong(shlex.join(words)) == ""
    worker = ALL["forebay worker"].make_context("worker", words[1:])
    assert worker.params["processes"] == 4
    assert int(parser["Service"]["TimeoutStopSec"]) >= worker.params["drain_timeout"] + 10
    assert (ROOT / "docs" / "guide" / "workers.md").exists()
