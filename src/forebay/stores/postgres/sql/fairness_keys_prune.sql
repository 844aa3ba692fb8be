-- fairness_keys_prune: delete fairness keys of these queues that have nothing to run, and repeated rows without a
-- virtual time.
-- Guarantees: a later statement than the lock. A claim may go by a row that is deleted here meanwhile, and would leave
-- a job without any.
-- Locks: the caller holds the fairness locks of the queues.
with again as (
  delete from forebay.fairness_keys s
  where queue = any(%(queues)b::text[])
    and virtual_time is null
    and exists (
      select 1
      from forebay.fairness_keys o
      where o.queue = s.queue and o.fairness_key = s.fairness_key and o.virtual_time is null and o.ctid < s.ctid
    )
)
delete from forebay.fairness_keys s
where queue = any(%(queues)b::text[])
  and virtual_time is not null
  and not exists (select 1 from forebay.side_lanes where queue = s.queue and lane = 'fairness:' || s.fairness_key);
