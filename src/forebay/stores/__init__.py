"""Where jobs live: the seam (`protocol`) and the engines behind it."""

from __future__ import annotations
