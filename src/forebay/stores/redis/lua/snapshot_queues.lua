#!lua flags=no-writes
-- snapshot_queues: number of jobs by queue and state, and of removed jobs, at one moment.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns the time, and the two hashes.
return {now, redis.call('HGETALL', prefix .. 'counts'), redis.call('HGETALL', prefix .. 'removed_counts')}
