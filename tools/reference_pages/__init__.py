"""Pages of the reference, and parts of pages, that are made from the code."""

from __future__ import annotations
