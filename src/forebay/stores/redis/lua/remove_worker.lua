#!lua flags=allow-oom
-- Take a worker that has ended in order off the list.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker
-- Returns nothing.
redis.call('HDEL', prefix .. 'workers', request.worker)
