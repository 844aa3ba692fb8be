"""Files that cannot be used: a typed error that names the file and the way out, and nothing is changed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from forebay.domain.job_query import JobQuery
from forebay.domain.worker import WorkerInfo
from forebay.errors import ConfigError, StoreError, StoreUnavailable, StoreUnusable
from forebay.stores.sqlite import engine as module
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.file_system_check import NETWORK_FILE_SYSTEMS, check_file_system, file_system_of
from tests.stores.sqlite_support import program
from tests.stores.support import WORKER, new_job

NOT_DATABASES: Final = {
    "random bytes": Random(7).randbytes(20_000),
    "a text": b"Dear diary, today I saw a database.\n" * 500,
    "a short text": b"Hi",
    "a header that is almost right": b"SQLite format 4\x00" + bytes(5_000),
}


def open_all(engine: SqliteEngine) -> Iterator[StoreError]:
    """The errors with which each kind of handle is refused."""
    for handle in (engine.store, engine.reader, lambda: engine.wakeups().start(lambda: None)):
        with pytest.raises(StoreError) as refused:
            handle()
        yield refused.value


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "jobs.db"

    refused = list(open_all(SqliteEngine(str(path))))

    assert {type(error) for error in refused} == {StoreUnusable}
    assert all(str(path) in str(error) for error in refused)
    assert all(f"{path.parent} does not exist; create it first" in str(error) for error in refused)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.mkdir()

    with pytest.raises(StoreUnusable, match="is a folder: name a file") as refused:
        SqliteEngine(str(path)).store()

    assert str(path) in str(refused.value)
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("content", NOT_DATABASES.values(), ids=NOT_DATABASES)
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(content)

    for open_handle in (SqliteEngine(str(path)).store, SqliteEngine(str(path)).reader):
        with pytest.raises(StoreUnusable, match="is not a SQLite database: name another file") as refused:
            open_handle()
        assert str(path) in str(refused.value)

    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.touch()

    store = SqliteEngine(str(path)).store()
    [receipt] = store.insert([new_job()])
    store.close()

    assert receipt.is_new


@pytest.mark.parametrize(
    "name", ["with space.db", "jobs?mode=memory", "jobs#1.db", "jöbs.db", ":memory:", "%20"]
)
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    engine = SqliteEngine(str(tmp_path / name))
    store = engine.store()
    store.insert([new_job()])
    store.close()

    reader = engine.reader()
    assert len(reader.search(JobQuery()).jobs) == 1
    reader.close()
    assert (tmp_path / name).is_file()


def test_a_sqlite_that_is_too_old_is_refused_before_the_file_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.36.0")
    engine = SqliteEngine(str(tmp_path / "jobs.db"))

    for open_handle in (engine.store, engine.reader):
        with pytest.raises(ConfigError, match=r"uses SQLite 3\.36\.0; Forebay needs 3\.37\.0 or newer"):
            open_handle()

    assert list(tmp_path.iterdir()) == []


# Read-only

READ_ONLY: Final = """
warm = SqliteEngine(sys.argv[2])  # loads what an unprivileged user might not be able to read
warm.store().close(), warm.reader().close()
if os.geteuid() == 0:
    os.seteuid(65534)

def attempt(what, call):
    try:
        say(what, "works", call())
    except Exception as error:
        say(what, type(error).__name__, error)

def insert():
    store = SqliteEngine(path).store()
    try:
        return store.insert([job()])[0].is_new
    finally:
        store.close()

def heartbeat():
    store = SqliteEngine(path).store()
    try:
        return store.heartbeat(WorkerInfo(id=WorkerId("w1")))
    finally:
        store.close()

attempt("insert", insert)
attempt("heartbeat", heartbeat)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach; pytest's own ones are private."""
    folder = Path(tempfile.mkdtemp(prefix="forebay-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def made_database(folder: Path) -> Path:
    path = folder / "jobs.db"
    store = SqliteEngine(str(path)).store()
    store.insert([new_job()] * 3)
    store.close()
    return path


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"),
    [(0o444, 0o555), (0o444, 0o777), (0o666, 0o555)],
    ids=["file and folder", "file", "folder"],
)
def test_a_read_only_place_is_refused_with_the_way_out(
    open_folder: Path, tmp_path: Path, file_mode: int, folder_mode: int
) -> None:
    path = made_database(open_folder)
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)
    before = path.read_bytes()

    with program(READ_ONLY, path, tmp_path / "warm.db") as unprivileged:
        output = [unprivileged.hear(), unprivileged.hear()]

    for line, what in zip(output, ("insert", "heartbeat"), strict=True):
        assert line.startswith(f"{what} StoreUnusable {path} "), line
        assert "folder" in line
        assert "write" in line
    assert path.read_bytes() == before


def test_a_new_file_in_a_read_only_folder_is_refused(open_folder: Path, tmp_path: Path) -> None:
    open_folder.chmod(0o555)
    path = open_folder / "new.db"

    with program(READ_ONLY, path, tmp_path / "warm.db") as unprivileged:
        output = unprivileged.hear()

    assert output.startswith(f"insert StoreUnusable {path} cannot be opened: look at its folder"), output
    assert list(open_folder.iterdir()) == []


def test_a_lock_folder_that_cannot_be_made_is_named_by_a_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    (tmp_path / "jobs.db-forebay").write_text("in the way")
    store = SqliteEngine(str(path)).store()

    with pytest.raises(StoreUnavailable, match="look at that folder") as refused:
        store.heartbeat(WorkerInfo(id=WORKER))
    store.close()

    assert f"{path}-forebay" in str(refused.value)
    assert (tmp_path / "jobs.db-forebay").read_text() == "in the way"


# Network file systems


def mountinfo(folder: Path, kind: str) -> str:
    point = str(folder).replace(" ", "\\040")  # as the kernel writes a space
    return (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"35 22 0:30 / {point} rw,relatime shared:2 master:1 - {kind} server:/jobs rw,vers=4.2\n"
    )


@pytest.mark.shows("R-STORE-23")
@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    folder = tmp_path / "shared"
    folder.mkdir()
    mounts.write_text(mountinfo(folder, kind))
    monkeypatch.setattr(module, "check_file_system", partial(check_file_system, mounts=str(mounts)))

    with pytest.raises(StoreUnusable, match="use a local disk, or a postgresql:// store") as refused:
        SqliteEngine(str(folder / "jobs.db")).store()

    assert f"{folder}/jobs.db lies on a network file system ({kind})" in str(refused.value)
    assert list(folder.iterdir()) == []


def test_a_link_to_a_network_file_system_does_not_hide_it(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(mountinfo(folder, "nfs4"))

    with pytest.raises(StoreUnusable, match="nfs4"):
        check_file_system(tmp_path / "link" / "jobs.db", mounts=str(mounts))


def test_where_mounts_cannot_be_read_no_file_is_refused(tmp_path: Path) -> None:
    check_file_system(tmp_path / "jobs.db", mounts=str(tmp_path / "missing"))


def test_a_database_that_is_mounted_alone_is_refused(tmp_path: Path) -> None:
    """As `docker run -v jobs.db:/app/jobs.db` does it: the container has -wal and -shm files of its own."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    point = str(folder / "jobs.db").replace(" ", "\\040")
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /data/jobs.db {point} rw - ext4 /dev/a rw\n")

    with pytest.raises(StoreUnusable, match=f"mount the folder {folder} instead"):
        check_file_system(folder / "jobs.db", mounts=str(mounts))
    check_file_system(folder / "other.db", mounts=str(mounts))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/jobs.db", "nfs4"),
        ("/data", "nfs4"),
        ("/database/jobs.db", "ext4"),
        ("/data/local/jobs.db", "xfs"),
        ("/data/local/deep/jobs.db", "xfs"),
        ("/with space/jobs.db", "cifs"),
        ("/twice/jobs.db", "tmpfs"),
    ],
)
def test_the_longest_and_last_mount_point_decides(path: str, kind: str) -> None:
    lines = [
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
        "a broken line",
        "30 22 0:30 / /data rw shared:2 - nfs4 server:/ rw",
        "31 30 8:2 / /data/local rw - xfs /dev/sdb rw",
        r"32 22 0:31 / /with\040space rw - cifs //server/share rw",
        "33 22 0:32 / /twice rw - nfs server:/ rw",
        "34 33 0:33 / /twice rw - tmpfs tmpfs rw",
    ]

    assert file_system_of(path, "\n".join(lines)) == kind
