#!lua flags=allow-oom
-- Whether the caller shall do this duty now.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, every_ms
-- Returns 1 or 0.
return acquire_maintenance(request.name, request.every_ms) and 1 or 0
