"""What a job is: pure values and decisions. No I/O, no clock, no chance, no logging.

Time inside is whole milliseconds. Instants end in `_at` and count from 1970 UTC, lengths end in `_ms`:
one unit in Python, SQL and Lua, so nothing has to be converted on the way. The app floor speaks
`datetime` and `timedelta` to its users.
"""

from __future__ import annotations
