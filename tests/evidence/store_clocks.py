"""Stores on real servers whose clock can be stepped. No rights on the machine are needed: PostgreSQL answers
the time by a function of the schema, and scripts for Redis begin with one that can be replaced."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from forebay.stores.redis import connection
from forebay.stores.redis.key_layout import tag
from forebay.stores.redis.lua_scripts import Script, load_scripts
from tests.urls import url_of

# The server's clock and as many milliseconds as a key of the store says.
_LUA: Final = """
local function now_ms()
  local time = redis.call('TIME')
  local step = redis.call('GET', KEYS[1] .. ':test_step') or 0
  return time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(step)
end
"""
_SQL: Final = """
create table {schema}.test_step (ms bigint);
insert into {schema}.test_step values (0);
create or replace function {schema}.now_ms() returns bigint language sql volatile as $$
  select floor(extract(epoch from clock_timestamp()) * 1000)::bigint + ms from {schema}.test_step
$$;
"""


def use_stepped_scripts() -> None:
    """Let this process run scripts whose clock can be stepped."""
    setattr(connection, "load_scripts", _stepped)  # noqa: B010 - the name is another module's own


def _stepped(clock: str | None = None) -> dict[str, Script]:
    return load_scripts(clock or _LUA)


class SteppedStore:
    """A store whose clock is wrong by as many seconds as it was told, for all programs that use it."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.url = url_of(engine, folder)
        self._file = folder / "clock-store"
        self._file.write_text("0")
        self._name = self.url.rpartition("=")[2]
        self._is_redis = engine == "redis"
        if engine == "postgresql":
            support = import_module("tests.stores.postgres_support")
            import_module("forebay.stores.factory").open_engine(self.url).store().close()
            support.admin().execute(_SQL.format(schema=self._name))

    def step_to(self, seconds: int) -> None:
        """Set the store's clock: right by 0."""
        self._file.write_text(str(seconds))
        if self._is_redis:
            self._redis().set(f"{tag(self._name)}:test_step", seconds * 1_000)
        elif self.url.startswith("postgresql"):
            self._postgres(f"update {self._name}.test_step set ms = {seconds * 1_000}")

    def has_maintenance(self, name: str) -> bool:
        """Return whether some program has acquired this maintenance task."""
        if self._is_redis:
            return bool(self._redis().hexists(f"{tag(self._name)}:maintenance", name))
        found = self._postgres(f"select 1 from {self._name}.maintenance where name = '{name}'")
        return found.fetchone() is not None

    def _redis(self) -> Any:
        return import_module("tests.stores.redis_support").admin()

    def _postgres(self, statement: str) -> Any:
        return import_module("tests.stores.postgres_support").admin().execute(statement)
