-- firings_add: what became of runs, in this order.
insert into forebay.firings (name, at, status, recorded_at, job_id, reason, until_at, count)
select name, at, status, recorded_at, job_id, reason, until_at, count
from unnest(
  %(names)b::text[], %(ats)b::bigint[], %(statuses)b::text[], %(recorded_ats)b::bigint[], %(job_ids)b::text[],
  %(reasons)b::text[], %(until_ats)b::bigint[], %(counts)b::bigint[]
) with ordinality as f (name, at, status, recorded_at, job_id, reason, until_at, count, place)
order by place;
