"""Pure values and decisions about jobs. No I/O, no clock, no randomness, no logging.

Time is in whole milliseconds. Instants end in `_at` and count from 1970 UTC, durations end in `_ms`: one unit
in Python, SQL and Lua, so nothing is converted on the way. The `app` package takes `datetime` and `timedelta`
from its users.
"""

from __future__ import annotations
