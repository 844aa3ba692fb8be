-- firings_add: what became of runs, in this order.
insert into forebay.firings (name, at, status, recorded_at, job_id, reason, until_at, count)
select name, at, status, recorded_at, job_id, reason, until_at, count
from unnest(
  %(name)b::text[], %(planned_at)b::bigint[], %(status)b::text[], %(recorded_at)b::bigint[], %(job_id)b::text[],
  %(reason)b::text[], %(last_planned_at)b::bigint[], %(runs)b::bigint[]
) with ordinality as f (name, at, status, recorded_at, job_id, reason, until_at, count, place)
order by place;
