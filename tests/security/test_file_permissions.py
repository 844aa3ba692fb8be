"""Files of a SQLite store are for their user alone, and its folder of lock files as well."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.domain.job import WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.errors import ConfigError, StoreUnusable
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from forebay.stores.sqlite.database_paths import is_trusted
from tests.stores.support import new_job

WORKER = WorkerId("w1")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def url_of(folder: Path, options: str = "") -> str:
    return f"sqlite:///{folder / 'jobs.db'}{options}"


def modes_in_use(engine: Engine, folder: Path) -> dict[str, str]:
    """The permissions of all files and folders while a store is open, a worker alive and a listener there."""
    store, wakeups = engine.store(), engine.wakeups()
    assert wakeups is not None
    try:
        store.insert([new_job()])
        wakeups.start(lambda: None)
        store.heartbeat(WorkerInfo(id=WORKER))
        found = {path.name: path for path in folder.rglob("*")}
        modes = {name: oct(stat.S_IMODE(path.lstat().st_mode)) for name, path in found.items()}
    finally:
        wakeups.close()
        store.close()
    return modes


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("options", "file", "lock_folder"), [("", "0o600", "0o700"), ("?file_mode=660", "0o660", "0o770")]
)
def test_permissions_do_not_depend_on_the_umask(
    tmp_path: Path, options: str, file: str, lock_folder: str
) -> None:
    modes = modes_in_use(open_engine(url_of(tmp_path, options)), tmp_path)

    assert modes.pop("jobs.db-forebay") == lock_folder
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "worker-w1.lock"} < modes.keys()
    assert set(modes.values()) == {file}, modes


def test_a_file_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.touch()
    path.chmod(0o640)

    modes = modes_in_use(open_engine(url_of(tmp_path)), tmp_path)

    assert (modes["jobs.db"], modes["jobs.db-wal"]) == ("0o640", "0o640")


def test_a_file_behind_a_dangling_link_is_created_with_the_same_permissions(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").symlink_to(tmp_path / "real.db")

    modes = modes_in_use(open_engine(url_of(tmp_path)), tmp_path)

    assert modes["real.db"] == "0o600"


@pytest.mark.parametrize("mode", ["666", "0600", "rw", ""])
def test_other_permissions_are_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ConfigError, match="file_mode is 600, or 660 for a group"):
        open_engine(url_of(tmp_path, f"?file_mode={mode}"))


def test_a_folder_of_locks_that_other_users_can_write_to_is_refused(tmp_path: Path) -> None:
    engine = open_engine(url_of(tmp_path))
    engine.store().close()
    lock_folder = tmp_path / "jobs.db-forebay"
    lock_folder.mkdir()
    lock_folder.chmod(0o777)

    with pytest.raises(StoreUnusable, match=f"every user can write to it: chmod o-w {lock_folder}"):
        engine.store()
    lock_folder.chmod(0o755)
    engine.store().close()


def test_a_linked_folder_of_locks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "jobs.db-forebay").symlink_to(tmp_path / "theirs")

    with pytest.raises(StoreUnusable, match="is a link"):
        open_engine(url_of(tmp_path)).store()


def test_a_folder_that_opens_later_is_refused_before_a_lock_in_it_is_believed(tmp_path: Path) -> None:
    engine = open_engine(url_of(tmp_path))
    holder, other = engine.store(), engine.store()
    holder.heartbeat(WorkerInfo(id=WORKER))
    (tmp_path / "jobs.db-forebay").chmod(0o777)

    with pytest.raises(StoreUnusable, match="every user can write to it"):
        other.sweep(WorkerId("sweeper"), only_dead=True)
    with pytest.raises(StoreUnusable, match="every user can write to it"):
        other.heartbeat(WorkerInfo(id=WorkerId("w2")))
    holder.close()
    other.close()


def owned(uid: int, gid: int = 7) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | 0o755, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("folder", "database", "is_for_group", "trusted"),
    [
        (owned(os.geteuid()), None, False, True),
        (owned(4_000), None, False, False),
        (owned(4_000), owned(os.geteuid()), False, False),
        (owned(4_000), owned(os.geteuid()), True, True),
        (owned(4_000, 8), owned(os.geteuid()), True, False),
        (owned(4_000), owned(4_000, 8), False, True),
    ],
)
def test_a_folder_is_trusted_by_its_owner_or_its_group(
    folder: os.stat_result, database: os.stat_result | None, is_for_group: bool, trusted: bool
) -> None:
    assert is_trusted(folder, database, is_for_group=is_for_group) is trusted
