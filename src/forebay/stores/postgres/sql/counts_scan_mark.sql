-- counts_scan_mark: the marked id, if all transactions that were writing then have ended, and whether some have not. It
-- runs before the folding, which then sees all that they have written. A mark of another server counts as none.
select
  max(d.scan_position) filter (where d.due_at <= s.oldest),
  coalesce(bool_or(d.due_at > s.oldest and d.due_at <= s.coming), false)
from (
  select
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as coming
) as s
left join forebay.maintenance d on d.name = 'scan mark of counts';
