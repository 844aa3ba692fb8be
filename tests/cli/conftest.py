"""A folder of its own for every command, with a store in it and no settings from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.cli.command_runner import TASKS

URL = "sqlite:///jobs.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: empty, and without settings."""
    for name in os.environ:
        if name.startswith("FOREBAY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """A store that `forebay.toml` names."""
    (folder / "forebay.toml").write_text(f'url = "{URL}"\n')
    store = open_engine(f"sqlite:///{folder / 'jobs.db'}").store()
    yield store
    store.close()


@pytest.fixture
def reader(store: Store, folder: Path) -> Iterator[Reader]:
    reader = open_engine(f"sqlite:///{folder / 'jobs.db'}").reader()
    yield reader
    assert reader.health().problems == ()
    reader.close()


@pytest.fixture
def app_folder(folder: Path) -> Path:
    """A folder with an app that `pyproject.toml` names."""
    (folder / "tasks.py").write_text(TASKS)
    (folder / "pyproject.toml").write_text('[tool.forebay]\napp = "tasks:app"\n')
    return folder
