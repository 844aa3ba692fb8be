-- limit_fairness_remove: delete those of these fairness keys that have no jobs behind the limit.
-- Locks: the caller holds the fairness lock of the queue, so no other transaction puts a job into a lane meanwhile.
-- Index: side_lanes_order.
delete from forebay.limit_fairness_lanes l
where l.queue = %(queue)s
  and l.scope = %(scope)s
  and l.fairness_key = any(%(fairness_keys)b::text[])
  and not exists (
    select 1
    from forebay.side_lanes
    where queue = l.queue and lane = 'limit:' || l.scope || E'\t' || l.fairness_key
    offset 0
  );
