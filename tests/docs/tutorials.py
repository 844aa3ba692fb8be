"""A tutorial as its reader follows it: files are written, commands are given, terminals stay open."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import Final

from tests.docs.pages import DEADLINE, ROOT, Block, fenced, text
from tests.service.curl import search_path
from tests.worker.support import eventually

PORT: Final = "8000"  # as the pages have it; a test takes one that is free
_FILE: Final = re.compile(r"#\s*(\S+\.(?:py|html|toml))\n")
_ORDINAL: Final = re.compile(r"#\s*(.+ terminal)\s*$")
_PACKAGE: Final = re.compile(r"([A-Za-z0-9_.-]+)(?:\[([a-z,]+)\])?")


class Reader:
    """A reader who follows a page in a folder of their own."""

    def __init__(self, page: str, folder: Path, stack: ExitStack) -> None:
        self.page = page
        self.folder = folder
        self.port = _free_port()
        self.answers: list[str] = []
        self._stack = stack
        self._terminals: dict[str, ExitStack] = {}

    def follow(self) -> None:
        for block in fenced(text(self.page)):
            if block.language == "console":
                self._type(block)
            elif block.language in ("python", "html", "toml"):
                self._write(block)

    def _write(self, block: Block) -> None:
        """A block that begins with the name of a file is that file; one that begins with "..." goes to its
        end."""
        found = _FILE.match(block.body)
        assert found is not None, f"{self.page}:{block.line} does not say which file this is"
        path = self.folder / found[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        body = block.body[found.end() :]
        if body.startswith("...\n"):
            body = path.read_text(encoding="utf-8") + body.removeprefix("...\n")
        path.write_text(body, encoding="utf-8")

    def _type(self, block: Block) -> None:
        lines = block.body.replace(PORT, str(self.port)).splitlines()
        terminal = _ORDINAL.match(lines[0])
        if terminal is not None:
            [command] = [line.removeprefix("$ ") for line in lines[1:]]
            self._open(terminal[1], command)
            return
        command, wanted = "", list[str]()
        for line in [*lines, "$ "]:
            if line.startswith("$ "):
                if command:
                    self._give(command, wanted)
                command, wanted = line.removeprefix("$ "), []
            else:
                wanted.append(line)

    def _give(self, command: str, wanted: list[str]) -> None:
        if command.startswith("pip install "):
            for word in shlex.split(command)[2:]:
                _check_installable(word)
            return
        # Programs in other terminals may need a moment longer than a reader's fingers.
        tries = iter(range(200))
        done = eventually(lambda: self._done(command) or next(tries) < 0, DEADLINE)
        assert isinstance(done, str)
        self.answers.append(done)
        for line in wanted:
            # Three dots stand for what is different each time.
            pattern = ".*".join(map(re.escape, line.split("...")))
            assert re.search(pattern, done), (command, line, done)

    def _done(self, command: str) -> str | None:
        answer = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        if command.startswith("curl") and answer.returncode:
            return None  # the server is not there yet
        assert answer.returncode == 0, (command, answer.stdout, answer.stderr)
        return f"{answer.stdout}\n"

    def _open(self, terminal: str, command: str) -> None:
        """Start what stays; what ran in this terminal before is ended by Ctrl-C, as a reader does."""
        if terminal in self._terminals:
            self._terminals.pop(terminal).close()
        own = self._stack.enter_context(ExitStack())
        own.enter_context(_running(command, self.folder, self.environment))
        self._terminals[terminal] = own

    @property
    def environment(self) -> dict[str, str]:
        """That of a terminal in which what was installed is found first."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        programs = Path(sys.executable).parent
        return {**plain, "PATH": f"{programs}{os.pathsep}{search_path(self.folder)}", "PYTHONPATH": ""}


@contextmanager
def following(page: str, folder: Path) -> Iterator[Reader]:
    """The page followed to its end; what it has started runs while the block lasts."""
    with ExitStack() as stack:
        reader = Reader(page, folder, stack)
        reader.follow()
        yield reader


@contextmanager
def _running(command: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    words = shlex.split(command)
    program = shutil.which(words[0], path=environment["PATH"])
    assert program is not None, f"{words[0]} is not installed"
    heard: list[str] = []
    process = subprocess.Popen(
        [program, *words[1:]],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stream = process.stdout
    assert stream is not None
    listening = Thread(target=lambda: heard.extend(stream), daemon=True)
    listening.start()
    try:
        yield
        assert process.poll() is None, (command, heard)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(DEADLINE)
        finally:
            process.kill()
            listening.join(DEADLINE)
            stream.close()


def _check_installable(word: str) -> None:
    """What is installed by the page is what the tests have: ours with extras that there are, and others."""
    found = _PACKAGE.match(word.removeprefix("/path/to/"))
    assert found is not None, word
    if found[1] != "forebay":
        assert not word.startswith("/"), word
        distribution(found[1])  # raises if there is none
        return
    assert word.startswith("/path/to/"), f"{word}: there is no release"
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set((found[2] or "").split(",")) - {""} <= set(known), word


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
