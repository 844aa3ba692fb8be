"""Name of an actor: the one under which an operator's actions are in the audit log."""

from __future__ import annotations

from forebay.errors import ConfigError


def check_actor(name: str) -> None:
    """Raise ConfigError for a name that the audit log would show as another one."""
    if "#" in name:
        raise ConfigError(
            f"{name!r:.100} cannot be an actor of the audit log: leave out the #, which begins a request id"
        )
