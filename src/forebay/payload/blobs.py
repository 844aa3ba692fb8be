"""Where large payloads and results are kept beside the store, so that its rows stay small."""

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
# Whoever writes a blob has so long until its row must be there. Clocks of programs and stores differ, and
# transactions of callers stay open for long, but not for this long.
ORPHAN_AGE_MS: Final = 7 * DAY_MS
# store / job / what it is . when it was written, as a ULID . SHA-256
_NAME: Final = re.compile(
    r"([0-9A-Z]{26})/([A-Za-z0-9_-]{1,100})/(payload|result)\.([0-9A-Z]{26})\.([0-9a-f]{64})\Z"
)
_UNFINISHED: Final = ".part"


class BlobName(NamedTuple):
    """What the name of a blob says. Stores may share a place: none looks at another one's."""

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
    """The parts of a name; None if it is none."""
    parts = _NAME.match(text)
    return None if parts is None else BlobName(parts[1], JobId(parts[2]), *parts.group(3, 4, 5))


class Blobs(Protocol):
    """A place for bytes under names as `blob_name` knows them; one name is written once. Raises
    StoreUnavailable if it cannot be reached."""

    def put(self, name: str, data: bytes) -> None:
        """Keep these bytes; they must survive a crash when this returns."""
        ...

    def get(self, name: str) -> bytes | None:
        """The bytes of this name; None if the place is there and they are not."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Forget them; those that are gone already too."""
        ...

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        """Names of this store in their order: the first behind `after`, at most `limit`; none only if there
        are no more."""
        ...


class FolderBlobs:
    """Blobs as files of a folder, which all programs of a store must share. Nobody else can read them.

    The folder must be there, and is never made: where its file system is not mounted, blobs would be written
    to the disk below, and nobody else would find them.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()  # a program may change its own later
        if not self._folder.is_dir():
            raise ConfigError(
                f"there is no folder {self._folder} for blobs; make it once, for all programs of the store"
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
            # Gone, or the whole place is: then its store has nothing in it.
            os.stat(path.parents[1])
            return None
        except OSError as exc:
            raise self._unavailable_error(exc) from exc

    def delete(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                path = self._path(name)
                path.unlink(missing_ok=True)
                with suppress(OSError):  # others are there, or are just being written
                    path.parent.rmdir()
        except OSError as exc:
            raise self._unavailable_error(exc) from exc

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        found: list[str] = []
        try:
            if store not in os.listdir(self._folder):
                return []
            # In the order of names: there "a-b/" stands before "a/".
            for job in sorted(f"{store}/{entry}/" for entry in os.listdir(self._folder / store)):
                if job >= after[: len(job)]:
                    found += [name for name in self._list_job(job) if name > after]
                if len(found) >= limit:
                    break
        except OSError as exc:
            raise self._unavailable_error(exc) from exc
        return found[:limit]

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
        if not blob_name(name):  # a name comes from the store, and must not lead out of the folder
            raise ConfigError(f"{name!r:.120} is not the name of a blob")
        return self._folder / name

    def _unavailable_error(self, exc: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"the blobs in {self._folder} cannot be reached: {exc.strerror or exc}")

    def __repr__(self) -> str:
        return f"<FolderBlobs {self._folder}>"


class S3Blobs:
    """Blobs as objects of a bucket. `client` speaks as boto3's S3 client does: `put_object`, `get_object`,
    `delete_objects`, `list_objects_v2`. It must be usable from several threads, as boto3's is.

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

        found: bytes | None = self._call("get_object", read, Key=self._prefix + name)
        return found

    def delete(self, names: Sequence[str]) -> None:
        for first in range(0, len(names), PAGE):  # as many as one request may name
            keys = [{"Key": self._prefix + name} for name in names[first : first + PAGE]]
            self._call("delete_objects", Delete={"Objects": keys, "Quiet": True})

    def names(self, store: str, *, after: str = "", limit: int = PAGE) -> list[str]:
        behind = self._prefix + after if after else ""
        while True:
            answer = self._call(
                "list_objects_v2",
                Prefix=f"{self._prefix}{store}/",
                StartAfter=behind,
                MaxKeys=min(limit, PAGE),
            )
            keys = [one["Key"] for one in (answer or {}).get("Contents", ())]
            found = [name for key in keys if blob_name(name := key.removeprefix(self._prefix))]
            # A page full of what is not ours is not the end.
            if found or not keys or not answer.get("IsTruncated"):
                return found
            behind = keys[-1]

    def _call(self, method: str, read: Callable[[Any], Any] = lambda answer: answer, **params: Any) -> Any:
        """What is read from the client's answer, which may still be on its way; None if there is no such
        object."""
        try:
            return read(getattr(self._client, method)(Bucket=self._bucket, **params))
        except Exception as exc:  # of a library that we do not know
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
    """Remove what a program has begun to write that died of it."""
    with suppress(OSError):  # it is finished, or gone, or not ours to remove
        if path.stat().st_mtime * 1_000 < SystemClock().now_ms() - ORPHAN_AGE_MS:
            path.unlink()
