"""Places for blobs: the folder, and a bucket behind a client that speaks as boto3's does."""

from __future__ import annotations

import io
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ConfigError, StoreUnavailable
from forebay.payload.blob_stores import Blobs, FolderBlobs, S3Blobs
from forebay.stores.id_generator import new_id

STORE = "01KA5Y0000STORE00000000000"
OTHER = "01KA5Y0000STORE00000000001"


class Missing(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class Bucket:
    """As much of S3 as is asked for: objects by key, listed in their order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise Missing("SlowDown")

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self._check()
        self.objects[Key] = Body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self._check()
        if Key not in self.objects:
            raise Missing("NoSuchKey")
        return {"Body": io.BytesIO(self.objects[Key])}

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> None:
        self._check()
        for one in Delete["Objects"]:
            self.objects.pop(one["Key"], None)

    def list_objects_v2(self, *, Bucket: str, Prefix: str, StartAfter: str, MaxKeys: int) -> dict[str, Any]:
        self._check()
        keys = sorted(key for key in self.objects if key.startswith(Prefix) and key > StartAfter)
        if not keys:
            return {"IsTruncated": False}
        return {"Contents": [{"Key": key} for key in keys[:MaxKeys]], "IsTruncated": len(keys) > MaxKeys}


@pytest.fixture(params=["folder", "bucket"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return FolderBlobs(tmp_path) if request.param == "folder" else S3Blobs(Bucket(), "jobs")


def name(job: str, data: bytes = b"x", what: str = "payload", store: str = STORE) -> str:
    return f"{store}/{job}/{what}.{new_id()}.{sha256(data).hexdigest()}"


@pytest.mark.shows("R-SER-18")
def test_bytes_are_kept_until_they_are_deleted(blobs: Blobs) -> None:
    first, second = name("a"), name("b", what="result")
    blobs.put(first, b"one")
    blobs.put(second, b"\x00" * 300_000)

    assert (blobs.get(first), blobs.get(second)) == (b"one", b"\x00" * 300_000)
    blobs.delete([first, first])
    assert (blobs.get(first), blobs.get(second)) == (None, b"\x00" * 300_000)
    assert blobs.names(STORE) == [second]


def test_names_come_in_order_and_in_pages(blobs: Blobs) -> None:
    names = sorted(name(job) for job in ("a", "a", "a-b", "c-c", "cc"))
    for one in names:
        blobs.put(one, b"x")

    assert blobs.names(STORE) == names
    assert blobs.names(STORE, limit=2) == names[:2]
    assert blobs.names(STORE, after=names[0], limit=2) == names[1:3]
    assert blobs.names(STORE, after=names[1], limit=2) == names[2:4]
    assert blobs.names(STORE, after=names[-1]) == []


def test_stores_do_not_see_each_others_blobs(blobs: Blobs) -> None:
    own, others = name("a"), name("a", store=OTHER)
    blobs.put(own, b"own")
    blobs.put(others, b"another")

    assert blobs.names(STORE) == [own]
    assert blobs.names(OTHER) == [others]
    assert blobs.names(STORE, after=own) == []


def test_an_empty_place_has_no_names(blobs: Blobs) -> None:
    assert blobs.names(STORE) == []
    blobs.put(name("b"), b"x")
    assert blobs.get(name("a")) is None
    blobs.delete([name("a")])


def test_a_page_of_other_objects_is_not_the_end() -> None:
    bucket, own = Bucket(), name("b")
    blobs = S3Blobs(bucket, "jobs")
    blobs.put(own, b"x")
    bucket.objects |= {f"forebay/{STORE}/a{number}": b"?" for number in range(5)}

    assert blobs.names(STORE, limit=2) == [own]
    assert blobs.names(STORE, after=own, limit=2) == []


def test_an_answer_that_breaks_off_is_a_place_that_cannot_be_reached() -> None:
    class Torn(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError("connection reset")

    class Tearing(Bucket):
        def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
            return {"Body": Torn()}

    with pytest.raises(StoreUnavailable, match="connection reset"):
        S3Blobs(Tearing(), "jobs").get(name("a"))


@pytest.mark.shows("R-SEC-02")
@pytest.mark.parametrize(
    "bad", ["../../etc/passwd", f"{STORE}/../b", "/etc/passwd", "a/b/payload.x.y", "", "a\x00b"]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, bad: str) -> None:
    blobs = FolderBlobs(tmp_path)

    with pytest.raises(ConfigError, match="is not the name of a blob"):
        blobs.get(bad)
    with pytest.raises(ConfigError, match="is not the name of a blob"):
        blobs.put(bad, b"x")
    with pytest.raises(ConfigError, match="is not the name of a blob"):
        blobs.delete([bad])


@pytest.mark.shows("R-SEC-06")
def test_no_other_user_can_read_the_files(tmp_path: Path) -> None:
    one = name("a")
    FolderBlobs(tmp_path).put(one, b"x")

    file = tmp_path / one

    for path in (file, *file.parents[:2]):
        assert path.stat().st_mode & 0o077 == 0


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("hello")
    (tmp_path / STORE).mkdir()
    (tmp_path / STORE / "README").write_text("hello")
    (tmp_path / STORE / "a").mkdir()
    (tmp_path / STORE / "a" / "notes").write_text("x")

    assert FolderBlobs(tmp_path).names(STORE) == []
    assert (tmp_path / STORE / "a" / "notes").exists()


def test_what_was_never_finished_goes_after_a_week(tmp_path: Path) -> None:
    folder = tmp_path / STORE / "a"
    folder.mkdir(parents=True)
    old, new = folder / "old.part", folder / "new.part"
    for file in (old, new):
        file.write_text("x")
    day = 86_400
    os.utime(old, (0, new.stat().st_mtime - 8 * day))
    os.utime(new, (0, new.stat().st_mtime - 6 * day))

    assert FolderBlobs(tmp_path).names(STORE) == []

    assert [file.name for file in folder.iterdir()] == ["new.part"]


def test_a_place_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    bucket = Bucket()
    places: list[Blobs] = [FolderBlobs(tmp_path / "blobs"), S3Blobs(bucket, "jobs")]
    (tmp_path / "blobs").rmdir()  # as when its file system is not mounted
    bucket.is_away = True

    for blobs in places:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            blobs.get(name("a"))
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            blobs.put(name("a"), b"x")
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            blobs.names(STORE)
    assert not (tmp_path / "blobs").exists()


def test_a_folder_without_anything_of_the_store_is_another_one(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        FolderBlobs(tmp_path).get(name("a"))


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*/none for blobs; create it once"):
        FolderBlobs(tmp_path / "none")


def test_a_folder_stays_where_it_was_when_the_program_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blobs").mkdir()
    blobs, one = FolderBlobs("blobs"), name("a")
    monkeypatch.chdir("/")

    blobs.put(one, b"x")

    assert (tmp_path / "blobs" / one).read_bytes() == b"x"


def test_places_say_where_they_are(tmp_path: Path) -> None:
    assert repr(FolderBlobs(tmp_path)) == f"<FolderBlobs {tmp_path}>"
    assert repr(S3Blobs(Bucket(), "jobs")) == "<S3Blobs jobs/forebay/>"
