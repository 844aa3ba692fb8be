"""A program that makes a new store says so: it may be in the wrong folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.stores.factory import open_engine
from tests.urls import SHARED, url_of


@pytest.mark.parametrize("kind", SHARED)
def test_a_new_store_is_told_once_with_its_whole_address(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "forebay.stores")
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///jobs.db" if kind == "sqlite" else url_of(kind, tmp_path)
    engine = open_engine(url)
    messages = [f"created a new, empty store at {engine.location}"]

    for _ in range(2):
        engine.store().close()

    assert [record.getMessage() for record in caplog.records] == messages
    assert kind != "sqlite" or engine.location == str(tmp_path / "jobs.db")
