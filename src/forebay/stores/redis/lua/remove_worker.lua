#!lua flags=allow-oom
-- remove_worker: remove the record of a worker that has ended in order.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker
-- Returns nothing.
redis.call('HDEL', prefix .. 'workers', request.worker)
