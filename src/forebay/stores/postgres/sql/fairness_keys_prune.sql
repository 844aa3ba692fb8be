-- fairness_keys_prune: forget shares of these queues that have nothing to run, and what says more than once that jobs of a share
-- have come. Under the lock of their shares, and in a later statement: a claim that goes by a row which is deleted here
-- meanwhile would leave a job without any.
with again as (
  delete from forebay.fairness_keys s
  where queue = any(%(queues)b::text[])
    and virtual_time is null
    and exists (
      select 1 from forebay.fairness_keys o where o.queue = s.queue and o.fairness_key = s.fairness_key and o.virtual_time is null and o.ctid < s.ctid
    )
)
delete from forebay.fairness_keys s
where queue = any(%(queues)b::text[])
  and virtual_time is not null
  and not exists (select 1 from forebay.side_lanes where queue = s.queue and lane = 'fair:' || s.fairness_key);
