-- rescore_drop: running jobs get their place when they wait again. Each job is looked up by itself, for the reason that
-- `due` gives.
update forebay.jobs
set rescore_at = null
where id = any(array(
  select j.id
  from unnest(%(ids)b::text[]) as i (id)
  cross join lateral (
    select id
    from forebay.jobs
    where id = i.id
      and rescore_at <= %(now)s
      and exists (select 1 from forebay.leases l where l.id = i.id offset 0)
    for update skip locked
  ) as j
));
