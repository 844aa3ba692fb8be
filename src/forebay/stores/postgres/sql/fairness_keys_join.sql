-- fairness_keys_join: delete the rows without a virtual time, and give each of their keys a virtual time if it has
-- none. A key that had nothing to run starts one step behind the first; keys with another step than the usual one are
-- given.
-- A key with lanes behind limits resumes from the virtual time stored there, at most one step from the first
-- (`resuming_virtual_time` in domain/fairness.py). `least` and `greatest` ignore nulls.
-- Index: fairness_keys_virtual_time and limit_fairness_lanes_key.
with arrivals as (
  delete from forebay.fairness_keys
  where queue = any(%(names)b::text[]) and virtual_time is null
  returning queue, fairness_key
),
new as (
  select distinct queue, fairness_key from arrivals
)
insert into forebay.fairness_keys (queue, fairness_key, virtual_time)
select n.queue, n.fairness_key,
  case
    when l.resume_virtual_time is null then coalesce(f.virtual_time, 0) + coalesce(s.step, %(step)s)
    else greatest(
      f.virtual_time - coalesce(s.step, %(step)s),
      least(l.resume_virtual_time, f.virtual_time + coalesce(s.step, %(step)s))
    )
  end
from new n
left join lateral (
  select w.step
  from unnest(%(queues)b::text[], %(fairness_keys)b::text[], %(steps)b::bigint[]) as w (queue, fairness_key, step)
  where w.queue = n.queue and w.fairness_key = n.fairness_key
) as s on true
cross join lateral (
  select (
    select virtual_time
    from forebay.fairness_keys
    where queue = n.queue and virtual_time is not null
    order by virtual_time
    limit 1
  ) as virtual_time
) as f
cross join lateral (
  select max(resume_virtual_time) as resume_virtual_time
  from forebay.limit_fairness_lanes
  where queue = n.queue and fairness_key = n.fairness_key
) as l
where not exists (
  select 1
  from forebay.fairness_keys
  where queue = n.queue and fairness_key = n.fairness_key and virtual_time is not null
);
