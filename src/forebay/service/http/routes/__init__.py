"""HTTP routes by resource."""

from __future__ import annotations
