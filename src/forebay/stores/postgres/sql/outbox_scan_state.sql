-- outbox_scan_state: the lowest outbox entry and the last id that was given out. Then the marked id, if all
-- transactions that were writing then have ended, so that this snapshot sees every entry below the mark; and whether
-- some have not. A mark of another server counts as none.
-- Index: primary key, from the low-water mark on.
select
  (select id from forebay.dependency_outbox where id >= %(since)s order by id limit 1),
  coalesce(pg_sequence_last_value('forebay.dependency_outbox_id_seq'::regclass), 0),
  max(d.scan_position) filter (where d.due_at <= s.oldest),
  coalesce(bool_or(d.due_at > s.oldest and d.due_at <= s.coming), false)
from (
  select
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as coming
) as s
left join forebay.maintenance d on d.name = 'scan mark of outbox';
