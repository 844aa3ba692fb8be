"""`forebay doctor`: checks of the store, the schema, the workers and the clocks."""

from __future__ import annotations
