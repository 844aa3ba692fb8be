"""`forebay move`: what it answers, and its exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from forebay import Forebay
from forebay.operations.store_move import StoreMover
from tests.cli.command_runner import answer, call

LARGE: Final = "x" * 300_000


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    return ("move", "--from", f"sqlite:///{tmp_path}/old.db", "--to", f"sqlite:///{tmp_path}/new.db")


def test_stores_that_agree_end_with_0(words: tuple[str, ...]) -> None:
    with Forebay(words[2]) as app:
        app.enqueue("echo", [1])

    assert answer(*words)["compared"]["agrees"] is True


def test_a_job_that_came_after_the_last_pass_ends_with_1(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = StoreMover.compare

    def late(self: StoreMover) -> Any:
        with Forebay(words[2]) as app:
            app.enqueue("echo", [2])
        return compare(self)

    with Forebay(words[2]) as app:
        app.enqueue("echo", [1])
    monkeypatch.setattr(StoreMover, "compare", late)

    result = call(*words)

    assert result.exit_code == 1
    assert "2 jobs compared: 1 arrived meanwhile, and 0 differ" in result.stdout


def test_a_blob_that_is_gone_ends_with_1_and_blobs_without_a_folder_are_counted(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    with Forebay(words[2], blob_store=folder) as app:
        app.enqueue("echo", [LARGE])
    assert "1 job with blobs, which were not checked" in call(*words).stdout
    [blob] = [path for path in folder.rglob("*") if path.is_file()]
    blob.unlink()
    monkeypatch.setenv("FOREBAY_BLOB_STORE", str(folder))

    result = call(*words)

    assert result.exit_code == 1
    assert "the blobs of 1 job are missing" in result.stdout
