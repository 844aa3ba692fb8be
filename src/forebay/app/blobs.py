"""Where large payloads and results are kept beside the store, so that its rows stay small."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Protocol

from forebay.errors import ConfigError, StoreUnavailable

PAGE: Final = 1_000
# job id / what it is . when it was written, as a ULID . SHA-256
NAME: Final = re.compile(r"([A-Za-z0-9_-]{1,100})/(payload|result)\.([0-9A-Z]{26})\.([0-9a-f]{64})\Z")
_UNFINISHED: Final = ".part"


class Blobs(Protocol):
    """A place for bytes under names as `NAME` has them; one name is written once. Raises StoreUnavailable if
    it cannot be reached."""

    def put(self, name: str, data: bytes) -> None:
        """Keep these bytes; they must survive a crash when this returns."""
        ...

    def get(self, name: str) -> bytes | None:
        """The bytes of this name; None if there are none."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Forget them; those that are gone already too."""
        ...

    def names(self, *, under: str = "", after: str = "", limit: int = PAGE) -> list[str]:
        """Names in their order: those of the job `under`, or all behind `after`, at most `limit`."""
        ...


class FolderBlobs:
    """Blobs as files of a folder, which all programs of a store must share. Nobody else can read them."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent, suffix=_UNFINISHED, delete=False) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).rename(path)
            _sync(path.parent)
            _sync(self._folder)
        except OSError as exc:
            raise self._away(exc) from exc

    def get(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self._away(exc) from exc

    def delete(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                path = self._path(name)
                path.unlink(missing_ok=True)
                with suppress(OSError):  # others are there, or are just being written
                    path.parent.rmdir()
        except OSError as exc:
            raise self._away(exc) from exc

    def names(self, *, under: str = "", after: str = "", limit: int = PAGE) -> list[str]:
        found: list[str] = []
        try:
            for job in [under] if under else sorted(os.listdir(self._folder)):
                if job >= after.partition("/")[0]:
                    found += [name for name in self._of(job) if name > after]
                if len(found) >= limit:
                    break
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise self._away(exc) from exc
        return found[:limit]

    def _of(self, job: str) -> list[str]:
        try:
            files = sorted(os.listdir(self._folder / job))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for file in files if NAME.match(name := f"{job}/{file}")]

    def _path(self, name: str) -> Path:
        if not NAME.match(name):  # a name comes from the store, and must not lead out of the folder
            raise ConfigError(f"{name!r:.120} is not the name of a blob")
        return self._folder / name

    def _away(self, exc: OSError) -> StoreUnavailable:
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
        self._ask("put_object", Key=self._prefix + name, Body=data)

    def get(self, name: str) -> bytes | None:
        answer = self._ask("get_object", Key=self._prefix + name)
        if answer is None:
            return None
        data: bytes = answer["Body"].read()
        return data

    def delete(self, names: Sequence[str]) -> None:
        for first in range(0, len(names), PAGE):  # as many as one request may name
            keys = [{"Key": self._prefix + name} for name in names[first : first + PAGE]]
            self._ask("delete_objects", Delete={"Objects": keys, "Quiet": True})

    def names(self, *, under: str = "", after: str = "", limit: int = PAGE) -> list[str]:
        answer = self._ask(
            "list_objects_v2",
            Prefix=self._prefix + (f"{under}/" if under else ""),
            StartAfter=self._prefix + after if after else "",
            MaxKeys=min(limit, PAGE),
        )
        keys = [one["Key"] for one in (answer or {}).get("Contents", ())]
        return [name for key in keys if NAME.match(name := key.removeprefix(self._prefix))]

    def _ask(self, method: str, **words: Any) -> Any:
        """The client's answer; None if there is no such object."""
        try:
            return getattr(self._client, method)(Bucket=self._bucket, **words)
        except Exception as exc:  # of a library that we do not know
            response = getattr(exc, "response", None)
            code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
            if code in ("NoSuchKey", "404"):
                return None
            raise StoreUnavailable(f"the blobs in bucket {self._bucket} cannot be reached: {exc}") from exc

    def __repr__(self) -> str:
        return f"<S3Blobs {self._bucket}/{self._prefix}>"


def _sync(folder: Path) -> None:
    """Make the entries of a folder survive a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
