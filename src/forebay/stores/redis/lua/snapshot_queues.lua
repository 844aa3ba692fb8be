#!lua flags=no-writes
-- How many jobs there are by queue and state, and how many are gone, at one moment.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns the time, and the two hashes.
return {now, redis.call('HGETALL', prefix .. 'counts'), redis.call('HGETALL', prefix .. 'removed_counts')}
