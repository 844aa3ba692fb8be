"""What tests of evidence share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evidence.networks import SERVERS, Network, network_to
from tests.urls import url_of


@pytest.fixture(params=SERVERS)
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    """A network to an empty store on the server of the tests."""
    with network_to(url_of(request.param, tmp_path)) as found:
        yield found
