-- ids_lock: show until the end of a caller transaction that it writes jobs under ids of its own. See `keys_take_tx`,
-- also for the number of locks.
with room as materialized (
  select coalesce(nullif(current_setting('forebay_tx.locks', true), '')::bigint, 0) as taken
)
select
  count(
    case when r.taken + n.nth <= 16 then pg_advisory_xact_lock(hashtextextended('forebay.jobs ' || n.id, 0))::text end
  ),
  set_config('forebay_tx.locks', (max(r.taken) + cardinality(%(ids)b::text[]))::text, true),
  case when max(r.taken) + cardinality(%(ids)b::text[]) > 16 then
    pg_advisory_xact_lock_shared(hashtextextended('forebay.many', 0))::text
  end
from room r
cross join unnest(%(ids)b::text[]) with ordinality as n (id, nth);
