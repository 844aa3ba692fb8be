"""An empty database for the old queue, and a folder without settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.importers import shop
from tests.importers.support import DATABASE
from tests.stores.redis_support import server


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.environ:
        if name.startswith("FOREBAY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    shop.DONE.clear()
    return tmp_path


@pytest.fixture
def old() -> Iterator[redis.Redis]:
    """The database of the old queue, empty at first."""
    with redis.Redis(port=server().port, db=DATABASE) as client:
        client.flushdb()
        yield client


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The store that jobs come to."""
    return f"sqlite:///{tmp_path / 'jobs.db'}"
