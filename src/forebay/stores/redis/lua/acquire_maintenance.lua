#!lua flags=allow-oom
-- acquire_maintenance: give a maintenance task to the caller if it is due.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, every_ms
-- Returns 1 or 0.
return acquire_maintenance(request.name, request.every_ms) and 1 or 0
