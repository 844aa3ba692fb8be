"""How soon a process is started again, and when that ends."""

from __future__ import annotations

from forebay.worker.supervisor.restart_policy import RestartPolicy


def test_the_first_restart_is_at_once_and_later_ones_wait_longer_and_longer() -> None:
    restarting = RestartPolicy()

    waits = [restarting.next_delay(float(now)) for now in range(5)]

    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0]


def test_the_sixth_death_within_a_minute_is_one_too_many() -> None:
    restarting = RestartPolicy()
    for now in range(5):
        restarting.next_delay(now * 10.0)

    assert restarting.next_delay(59.0) is None


def test_what_is_a_minute_ago_does_not_count() -> None:
    restarting = RestartPolicy()
    for now in range(5):
        restarting.next_delay(float(now))

    assert restarting.next_delay(61.0) is not None
    assert restarting.next_delay(3_600.0) == 0.0
