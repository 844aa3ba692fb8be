"""How much of its server a store uses, as far as there is one."""

from __future__ import annotations

from forebay.stores.protocol import Engine, Reader


def test_what_is_told_of_a_server_is_within_its_limits(engine: Engine, reader: Reader) -> None:
    found = reader.vitals()

    assert found == type(found)() or 0 < (found.connections or 0) <= (found.connection_limit or 0)
    assert (found.memory or 0) <= (found.memory_limit or 0)
    assert (found.evicted or 0) >= 0
