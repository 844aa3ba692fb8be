-- aftermaths_next: hold lines of the list, oldest first, that nobody else has in hand. Relies on the primary key, from the
-- floor on.
-- Guarantees: what has happened to one job is dealt with in the order in which it happened: a line waits for those of
-- its parent that are older, and whoever has these in hand has not removed them yet.
-- Of the new jobs to look at, those that wait for one of the busy parents are left out: a caller's open transaction completes
-- it, and they would hide what is behind them. Relies on the primary key of edges, only where there are busy parents.
-- Last, whether it is in a sequence: a job is there before it can end.
select number, parent, aftermath, after_child, after_number,
  (select id from forebay.sequences where id = a.parent limit 1) is not null
from forebay.aftermaths a
where number >= %(since)s
  and not exists (select 1 from forebay.aftermaths o where o.parent = a.parent and o.number < a.number)
  and (
    cardinality(%(busy)b::text[]) = 0
    or aftermath <> 'check'
    or not exists (
      select 1
      from forebay.edges e
      where e.child = a.parent and e.parent = any(%(busy)b::text[]) and e.state = 'unsure'
      offset 0
    )
  )
order by number
limit %(limit)s
for update skip locked;
