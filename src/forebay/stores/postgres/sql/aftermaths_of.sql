-- aftermaths_of: hold some lines of the list; the same as aftermaths_next for lines whose numbers are known.
select a.number, a.parent, a.aftermath, a.after_child, a.after_number,
  (select id from forebay.sequences where id = a.parent limit 1) is not null
from unnest(%(numbers)b::bigint[]) as w (number)
cross join lateral (
  select number, parent, aftermath, after_child, after_number
  from forebay.aftermaths
  where number = w.number
  for update skip locked
) as a
where not exists (select 1 from forebay.aftermaths o where o.parent = a.parent and o.number < a.number)
limit %(limit)s;
