-- limit_fairness_remove: forget those of these lanes that have no jobs. Relies on index gated_order.
-- Locks: the caller holds the lock of the queue's shares, so no other transaction puts a job into a lane meanwhile.
delete from forebay.limit_fairness_lanes l
where l.queue = %(queue)s
  and l.scope = %(scope)s
  and l.fairness_key = any(%(fairness_keys)b::text[])
  and not exists (
    select 1 from forebay.side_lanes where queue = l.queue and lane = 'limit:' || l.scope || E'\t' || l.fairness_key offset 0
  );
