-- aftermaths_look: the lowest line of the list of what the ends of jobs mean for others, and the last number that was
-- given to one. Then the number that was marked, if all who were writing then have ended, so that every line below is
-- seen by this very look; and whether some have not. A mark of another server is none. Relies on the primary key, from the
-- floor on.
select
  (select number from forebay.aftermaths where number >= %(since)s order by number limit 1),
  coalesce(pg_sequence_last_value('forebay.aftermaths_number_seq'::regclass), 0),
  max(d.walked_to) filter (where d.due_at <= s.oldest),
  coalesce(bool_or(d.due_at > s.oldest and d.due_at <= s.coming), false)
from (
  select
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as coming
) as s
left join forebay.duties d on d.name = 'mark of aftermaths';
