"""Forebay: a background job queue for Python.

The names in `__all__` are the promised ones. Importing this package loads no database driver.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
