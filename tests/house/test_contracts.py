"""The import contracts name every engine there is; the linter itself runs in `make check`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORES = ROOT / "src" / "forebay" / "stores"


def engines() -> set[str]:
    folders = {path.parent.name for path in STORES.glob("*/store.py")} - {"contract"}
    return {f"forebay.stores.{name}" for name in folders}


def contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return next(one for one in contracts if one["name"] == name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Store engines do not know each other", "modules"),
        ("Only open_store may name an engine", "protected_modules"),
    ],
)
@pytest.mark.shows("R-SDK-13")
def test_every_engine_is_under_contract(name: str, key: str) -> None:
    assert engines() <= set(contract(name)[key])
