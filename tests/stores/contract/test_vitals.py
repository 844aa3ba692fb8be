"""How much of its server a store uses, as far as there is one."""

from __future__ import annotations

import pytest

from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader


def test_what_is_told_of_a_server_is_within_its_limits(
    engine: Engine, reader: Reader, request: pytest.FixtureRequest
) -> None:
    found = reader.server_usage()

    if request.node.callspec.params["make_engine"].startswith(("postgresql", "redis")):
        assert 0 < (found.connections or 0) <= (found.connection_limit or 0)
    if request.node.callspec.params["make_engine"].startswith("redis"):
        assert (found.memory or 0) > 0
    assert (found.memory or 0) <= (found.memory_limit or 0)
    assert (found.evicted or 0) >= 0
