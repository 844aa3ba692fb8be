#!lua flags=no-writes
-- now: the store's clock.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns milliseconds since 1970.
return now
