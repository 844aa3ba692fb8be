"""Error for features of another queue that the facades do not offer."""

from __future__ import annotations

from forebay.errors import ConfigError


class Unsupported(ConfigError, AttributeError):
    """A call, an option or a setting of another queue is not offered; the text names the alternative. Also an
    AttributeError, so that `hasattr` returns False."""
