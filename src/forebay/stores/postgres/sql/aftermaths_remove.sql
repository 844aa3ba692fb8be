-- aftermaths_remove: lines of the list of which nothing is left to do.
delete from forebay.aftermaths a
where number = any(%(numbers)b::bigint[])
  and not exists (select 1 from forebay.edges e where e.parent = a.parent and e.state = any(%(states)b::text[]));
