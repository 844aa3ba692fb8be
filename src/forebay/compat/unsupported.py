"""What is said about a call that another queue has and we have not."""

from __future__ import annotations

from forebay.errors import ConfigError


class Unsupported(ConfigError, AttributeError):
    """A call, an option or a setting of another queue that there is not here; the text names the way out. Who
    asks an object whether it has an attribute is told that it has not."""
