"""People who look at a server all at once."""

from __future__ import annotations

import pytest

from benchmarks.viewers import measure_viewers, measurements
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import serving


@pytest.mark.shows("R-CLI-22")
def test_ten_people_look_and_nothing_goes_wrong() -> None:
    with serving(open_engine("memory://")) as served:
        seen = measure_viewers(served.address, users=10, seconds=0.1)

    assert set(seen.took) == {"queues", "workers", "metrics", "search", "total"}
    assert all(len(took) >= 10 for took in seen.took.values())
    assert not seen.wrong
    assert [one.measure for one in measurements(seen)][-1] == "went wrong"


def test_what_goes_wrong_is_told() -> None:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as served:
        seen = measure_viewers(served.address, users=1, seconds=0.1)

    assert seen.wrong["search: 401"] >= 1
