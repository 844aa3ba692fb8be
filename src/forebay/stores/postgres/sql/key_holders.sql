-- key_holders: who holds these keys now. A once key that has run out is held by nobody.
select k.queue, k.kind, k.key, k.job_id
from unnest(%(queues)b::text[], %(kinds)b::text[], %(keys)b::text[]) as w (queue, kind, key)
join forebay.keys k on k.queue = w.queue and k.kind = w.kind and k.key = w.key
where k.until is null or k.until > %(now)s;
