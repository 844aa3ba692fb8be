"""Places for blobs: the folder, and a bucket behind a client that speaks as boto3's does."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from forebay.app.blobs import Blobs, FolderBlobs, S3Blobs
from forebay.errors import ConfigError, StoreUnavailable
from forebay.stores.ids import new_id


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
        return {"Contents": [{"Key": key} for key in keys[:MaxKeys]]} if keys else {}


@pytest.fixture(params=["folder", "bucket"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return FolderBlobs(tmp_path / "blobs") if request.param == "folder" else S3Blobs(Bucket(), "jobs")


def name(job: str, data: bytes = b"x", what: str = "payload") -> str:
    return f"{job}/{what}.{new_id()}.{sha256(data).hexdigest()}"


@pytest.mark.shows("R-SER-18")
def test_bytes_are_kept_until_they_are_deleted(blobs: Blobs) -> None:
    first, second = name("a"), name("b", what="result")
    blobs.put(first, b"one")
    blobs.put(second, b"\x00" * 300_000)

    assert (blobs.get(first), blobs.get(second)) == (b"one", b"\x00" * 300_000)
    blobs.delete([first, first])
    assert (blobs.get(first), blobs.get(second)) == (None, b"\x00" * 300_000)
    assert blobs.names() == [second]


def test_names_come_in_order_and_in_pages(blobs: Blobs) -> None:
    names = sorted(name(job) for job in ("a", "a", "b", "c-c", "cc"))
    for one in names:
        blobs.put(one, b"x")

    assert blobs.names() == names
    assert blobs.names(limit=2) == names[:2]
    assert blobs.names(after=names[1], limit=2) == names[2:4]
    assert blobs.names(after=names[-1]) == []
    assert blobs.names(under="a") == names[:2]
    assert blobs.names(under="none") == []


def test_an_empty_place_has_no_names(blobs: Blobs) -> None:
    assert blobs.names() == []
    assert blobs.get(name("a")) is None
    blobs.delete([name("a")])


@pytest.mark.shows("R-SEC-02")
@pytest.mark.parametrize("bad", ["../../etc/passwd", "a/../b", "/etc/passwd", "a/payload.x.y", "", "a\x00b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, bad: str) -> None:
    blobs = FolderBlobs(tmp_path)

    with pytest.raises(ConfigError, match="is not the name of a blob"):
        blobs.get(bad)
    with pytest.raises(ConfigError, match="is not the name of a blob"):
        blobs.put(bad, b"x")
    with pytest.raises(ConfigError, match="is not the name of a blob"):
        blobs.delete([bad])


@pytest.mark.shows("R-SEC-06")
def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    one = name("a")
    FolderBlobs(tmp_path / "blobs").put(one, b"x")

    file = tmp_path / "blobs" / one

    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("hello")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "half.part").write_text("x")

    assert FolderBlobs(tmp_path).names() == []


def test_a_place_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    bucket = Bucket()
    bucket.is_away = True

    places: list[Blobs] = [FolderBlobs(tmp_path / "file"), S3Blobs(bucket, "jobs")]
    for blobs in places:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            blobs.get(name("a"))
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            blobs.put(name("a"), b"x")


def test_places_say_where_they_are() -> None:
    assert repr(FolderBlobs("/srv/blobs")) == "<FolderBlobs /srv/blobs>"
    assert repr(S3Blobs(Bucket(), "jobs")) == "<S3Blobs jobs/forebay/>"
