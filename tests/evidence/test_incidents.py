"""Incidents find nothing on any engine, and find what they are there for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from evidence.incidents import INCIDENTS
from tests.urls import SHARED

ROOT: Final = Path(__file__).resolve().parents[2]
# As the code was: children count on from the last id of their parent.
COUNTING_ON: Final = """
import sys
from evidence import incidents
from forebay.stores.id_generator import IdGenerator
IdGenerator.start_over = lambda self: None
sys.exit(incidents.main())
"""
# As the code was: a collector does not ask whether a move goes on.
CARELESS: Final = """
import sys
from evidence import incidents
from forebay.payload import blob_garbage_collection
blob_garbage_collection.keeps_blobs = lambda reader: False
sys.exit(incidents.main())
"""


def played(tmp_path: Path, engine: str, *words: str) -> dict[str, list[str]]:
    """Problems by incident. In a process of its own, which has no threads to fork."""
    path = tmp_path / "found"
    command = [sys.executable, *words, "--engine", engine, "--json", str(path)]
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    return {one["incident"]: one["problems"] for one in json.loads(path.read_text())}


@pytest.mark.parametrize("engine", SHARED)
def test_no_incident_loses_a_job_or_runs_one_twice(engine: str, tmp_path: Path) -> None:
    names = [incident.__name__.replace("_", " ") for incident in INCIDENTS]

    assert played(tmp_path, engine, "-m", "evidence.incidents") == {name: [] for name in names}


def test_ids_that_repeat_are_found(tmp_path: Path) -> None:
    found = played(tmp_path, "redis", "-c", COUNTING_ON)

    assert found["fork with the clock set back"]


def test_a_blob_that_is_removed_too_early_is_found(tmp_path: Path) -> None:
    found = played(tmp_path, "sqlite", "-c", CARELESS)

    assert any("was lost" in problem for problem in found["move with blobs"])
