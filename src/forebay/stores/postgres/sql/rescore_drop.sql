-- rescore_drop: clear the rescore time of running jobs, which get a rank when they wait again.
-- Cost: one probe per job, see `delayed_take_due`.
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
