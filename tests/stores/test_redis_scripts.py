"""The scripts of the Redis engine: none is missing or left over, and each says what it takes."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from forebay.stores.redis import key_layout
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.lua_scripts import load_scripts
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import claim, new_job

ENGINE = Path(key_layout.__file__).parent
FILES = {path.stem: path.read_text(encoding="utf-8") for path in (ENGINE / "lua").glob("*.lua")}
SHARED = [path.read_text(encoding="utf-8") for path in (ENGINE / "lua" / "shared").glob("*.lua")]
# They end what cannot be refused: a server without memory must let jobs end, and history go.
WHEN_FULL = {"prepare", "settle_and_claim", "renew", "sweep", "promote", "cancel", "delete"}
WHEN_FULL |= {"prune", "prune_queues", "prune_records"}


def test_every_script_is_asked_for_and_exists() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in ENGINE.glob("*.py"))
    named = set(re.findall(r'(?:run|_run|call|_run_count|_scan|_run_repeatedly)\(\s*"(\w+)"', code))

    assert named == set(FILES) == set(load_scripts())


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.shows("R-STORE-44")
def test_a_script_opens_with_what_it_may_do_what_it_takes_and_what_it_returns(name: str) -> None:
    lines = FILES[name].splitlines()

    assert re.fullmatch(r"#!lua( flags=(allow-oom|no-writes))?", lines[0])
    for start in ("-- KEYS: 1 the namespace", "-- ARGV: 1 ", "-- Returns "):
        assert any(line.startswith(start) for line in lines[1:12]), start


def test_what_ends_jobs_works_without_memory_and_what_brings_them_does_not() -> None:
    flags = {name: text.partition("\n")[0] for name, text in FILES.items()}

    assert {flags[name] for name in WHEN_FULL} == {"#!lua flags=allow-oom"}
    assert flags["insert"] == flags["insert_fast"] == "#!lua"


@pytest.mark.shows("R-STORE-39", "R-STORE-52", "R-STORE-44")
def test_every_key_is_documented_and_no_script_scans_the_server() -> None:
    text = "\n".join([*FILES.values(), *SHARED])
    page = key_layout.__doc__ or ""

    names = set(re.findall(r"prefix \.\. \(?'([a-z_]+)", text)) | set(re.findall(r"or '([a-z_]+):'", text))
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", page)] == []
    assert not re.search(r"'(KEYS|SCAN|FLUSHDB|FLUSHALL)'", text)


@pytest.mark.shows("R-STORE-51")
def test_scripts_that_the_server_has_forgotten_are_loaded_again(
    redis: ModuleType, clock: ManualClock
) -> None:
    engine = redis.make_engine(clock)
    store = engine.store()
    store.insert([new_job()])

    redis.admin().script_flush()

    store.insert([new_job()])
    assert len(claim(store, 5)) == 2
    store.close()


@pytest.mark.shows("R-STORE-51")
def test_scripts_that_are_forgotten_as_soon_as_they_are_loaded_are_loaded_again(
    redis: ModuleType, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, usual, flushes = redis.make_engine(clock).store(), Connection._command, iter(range(3))

    def forgetful(self: Connection, *words: bytes | str | int) -> Any:
        answer = usual(self, *words)
        if words[:2] == ("SCRIPT", "LOAD") and next(flushes, None) is not None:
            redis.admin().script_flush()
        return answer

    monkeypatch.setattr(Connection, "_command", forgetful)
    redis.admin().script_flush()

    store.insert([new_job()])
    assert next(flushes, None) is None
    assert len(claim(store, 5)) == 1
    store.close()


@pytest.mark.shows("R-STORE-53")
def test_all_keys_of_a_namespace_have_one_hash_tag(redis: ModuleType, clock: ManualClock) -> None:
    engine = redis.make_engine(clock)
    store = engine.store()
    store.insert(
        [new_job(unique_key="u", idempotency_key="o"), new_job(delay_ms=5, expires_at=clock.now_ms() + 9)]
    )
    [job] = claim(store)
    store.cancel([job.id])

    tag = engine.address.tag.encode()

    assert {key.partition(b":")[0] for key in redis.admin().keys("*")} == {tag}
    store.close()


def inner_names(text: str) -> set[str]:
    """What functions call their own: parameters, local variables, variables of loops, fields of tables."""
    text = re.sub(r"--.*", "", re.sub(r"'[^'\n]*'", "", text))
    found = re.findall(r"^ +local (?:function )?(\w+(?:, \w+)*)", text, re.MULTILINE)
    found += re.findall(r"function ?\w*\(([\w, ]*)\)", text) + re.findall(r"\bfor (\w+(?:, \w+)*)", text)
    found += [name for table in re.findall(r"\{([^{}]*)\}", text) for name in re.findall(r"(\w+) = ", table)]
    return {name for names in found for name in names.split(", ")}


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_inside_a_function_is_called_like_what_becomes_a_field(name: str) -> None:
    whole = "\n".join([*SHARED, FILES[name]])
    defined = r"^(?:local )?function (\w+)"
    variables = re.findall(r"^local ([a-z]\w*(?:, \w+)*)", "\n".join(SHARED), re.MULTILINE)
    fields = {*re.findall(defined, whole, re.MULTILINE), *", ".join(variables).split(", ")} - {"function"}

    assert inner_names(whole) & fields == set()
    outer = re.findall(r"^local ([a-z]\w*(?:, \w+)*)(?: =|$)", FILES[name], re.MULTILINE)
    assert set(", ".join(outer).split(", ")) & fields == set()
