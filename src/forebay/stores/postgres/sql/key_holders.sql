-- key_holders: who holds these keys now. A once key that has run out is held by nobody.
-- Each key is looked up by itself, for the reason that `due` gives.
select k.queue, k.kind, k.key, k.job_id
from unnest(%(queues)b::text[], %(kinds)b::text[], %(keys)b::text[]) as w (queue, kind, key)
cross join lateral (
  select * from forebay.keys where queue = w.queue and kind = w.kind and key = w.key offset 0
) as k
where k.until is null or k.until > %(now)s;
