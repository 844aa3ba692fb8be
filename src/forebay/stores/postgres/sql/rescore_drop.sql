-- rescore_drop: running jobs get their place when they wait again.
update forebay.jobs
set rescore_at = null
where id = any(array(
  select j.id
  from forebay.jobs j
  where j.id = any(%(ids)b::text[])
    and j.rescore_at <= %(now)s
    and exists (select 1 from forebay.leases l where l.id = j.id)
  for update of j skip locked
));
