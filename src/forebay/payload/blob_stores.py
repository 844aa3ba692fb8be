"""Blob stores: large payloads and results outside of the store, so that its rows stay small."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple, Protocol

from forebay.clock import SystemClock
from forebay.domain.job import DAY_MS, JobId
from forebay.domain.ulid import ulid_created_at
from forebay.errors import ConfigError, InvalidJob, StoreUnavailable

PAGE: Final = 1_000
# Time from the write of a blob until its row must exist. Clocks of programs and stores differ, and caller
# transactions stay open for long, but not for this long.
ORPHAN_AGE_MS: Final = 7 * DAY_MS
# store / job / kind . time of the write, as a ULID . SHA-256
_NAME: Final = re.compile(
    r"([0-9A-Z]{26})/([A-Za-z0-9_-]{1,100})/(payload|result)\.([0-9A-Z]{26})\.([0-9a-f]{64})\Z"
)
_UNFINISHED: Final = ".part"


class BlobName(NamedTuple):
    """The parts of a blob's name. Several stores may share a blob store: each reads its own blobs only."""

    store: str
    job: JobId
    kind: str
    written_ulid: str
    digest: str

    @property
    def written_at(self) -> int:
        try:
            return ulid_created_at(self.written_ulid)
        except InvalidJob:
            return 0

    def __str__(self) -> str:
        return f"{self.store}/{self.job}/{self.kind}.{self.written_ulid}.{self.digest}"


def blob_name(text: str) -> BlobName | None:
    """Return the parts of a name; None if it is not the name of a blob."""
    parts = _NAME.match(text)
    return None if parts is None else BlobName(parts[1], JobId(parts[2]), *parts.group(3, 4, 5))


class Blobs(Protocol):
    """A blob store: bytes under names that `blob_name` parses; each name is written once. Raises
    StoreUnavailable if it cannot be reached."""

    def put(self, name: str, data: bytes) -> None:
        """Store these bytes; they must survive a crash once this returns."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return the bytes of this name; None if the blob store is reachable and has none."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete these blobs; missing ones are ignored."""
        ...

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        """Return names of this store in order: the first after `after`, at most `limit`. An empty list means
        that there are no more."""
        ...


class FolderBlobs:
    """Blobs as files of a folder that all programs of a store share. Only its user can read them.

    The folder must exist, and is never created. If its file system is not mounted, blobs would be written to
    the disk below the mount point, where other programs would not find them.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()  # the program may change its working directory later
        if not self._folder.is_dir():
            raise ConfigError(
                f"there is no folder {self._folder} for blobs; create it once, for all programs of the store"
            )

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            for folder in (path.parents[1], path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent, suffix=_UNFINISHED, delete=False) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).rename(path)
            for folder in path.parents[:3]:
                _fsync_folder(folder)
        except OSError as exc:
            raise self._unavailable_error(exc) from exc

    def get(self, name: str) -> bytes | None:
        try:
            path = self._path(name)
            with suppress(FileNotFoundError):
                return path.read_bytes()
            # Raises if the folder of the whole store is missing: the file system may not be mounted.
            os.stat(path.parents[1])
            return None
        except OSError as exc:
            raise self._unavailable_error(exc) from exc

    def delete(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                path = self._path(name)
                path.unlink(missing_ok=True)
                with suppress(OSError):  # other blobs are there, or are being written
                    path.parent.rmdir()
        except OSError as exc:
            raise self._unavailable_error(exc) from exc

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        names: list[str] = []
        try:
            if store not in os.listdir(self._folder):
                return []
            # In the order of full names: "a-b/" sorts before "a/".
            for job in sorted(f"{store}/{entry}/" for entry in os.listdir(self._folder / store)):
                if job >= after[: len(job)]:
                    names += [name for name in self._list_job(job) if name > after]
                if len(names) >= limit:
                    break
        except OSError as exc:
            raise self._unavailable_error(exc) from exc
        return names[:limit]

    def _list_job(self, job: str) -> list[str]:
        folder = self._folder / job
        try:
            files = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        for file in files:
            if file.endswith(_UNFINISHED):
                _remove_if_old(folder / file)
        return [name for file in files if blob_name(name := job + file)]

    def _path(self, name: str) -> Path:
        if not blob_name(name):  # the name comes from the store, and must not lead out of the folder
            raise ConfigError(f"{name!r:.120} is not the name of a blob")
        return self._folder / name

    def _unavailable_error(self, exc: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"the blobs in {self._folder} cannot be reached: {exc.strerror or exc}")

    def __repr__(self) -> str:
        return f"<FolderBlobs {self._folder}>"


class S3Blobs:
    """Blobs as objects of a bucket. `client` is boto3's S3 client or has its methods `put_object`,
    `get_object`, `delete_objects`, `list_objects_v2`. It must be usable from several threads, as boto3's is.

        S3Blobs(boto3.client("s3"), bucket="jobs", prefix="forebay/")
    """

    def __init__(self, client: Any, bucket: str, prefix: str = "forebay/") -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def put(self, name: str, data: bytes) -> None:
        self._call("put_object", Key=self._prefix + name, Body=data)

    def get(self, name: str) -> bytes | None:
        def read(answer: Any) -> bytes:
            data: bytes = answer["Body"].read()
            return data

        data: bytes | None = self._call("get_object", read, Key=self._prefix + name)
        return data

    def delete(self, names: Sequence[str]) -> None:
        for first in range(0, len(names), PAGE):  # the limit of one request
            keys = [{"Key": self._prefix + name} for name in names[first : first + PAGE]]
            self._call("delete_objects", Delete={"Objects": keys, "Quiet": True})

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        start_after = self._prefix + after if after else ""
        while True:
            answer = self._call(
                "list_objects_v2",
                Prefix=f"{self._prefix}{store}/",
                StartAfter=start_after,
                MaxKeys=min(limit, PAGE),
            )
            keys = [entry["Key"] for entry in (answer or {}).get("Contents", ())]
            names = [name for key in keys if blob_name(name := key.removeprefix(self._prefix))]
            # A page without blobs is not the end.
            if names or not keys or not answer.get("IsTruncated"):
                return names
            start_after = keys[-1]

    def _call(self, method: str, read: Callable[[Any], Any] = lambda answer: answer, **params: Any) -> Any:
        """Call the client and read its answer, which may still be arriving; None if there is no such
        object."""
        try:
            return read(getattr(self._client, method)(Bucket=self._bucket, **params))
        except Exception as exc:  # the client's library and its errors are unknown
            response = getattr(exc, "response", None)
            code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
            if code in ("NoSuchKey", "404"):
                return None
            raise StoreUnavailable(f"the blobs in bucket {self._bucket} cannot be reached: {exc}") from exc

    def __repr__(self) -> str:
        return f"<S3Blobs {self._bucket}/{self._prefix}>"


def _fsync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_if_old(path: Path) -> None:
    """Remove an unfinished file of a program that died during the write."""
    with suppress(OSError):  # it is finished, removed, or the file of another user
        if path.stat().st_mtime * 1_000 < SystemClock().now_ms() - ORPHAN_AGE_MS:
            path.unlink()
