-- limit_slots_release: these jobs do not run any more. Whoever claims next looks behind the gates of their scopes.
with removed as (
  delete from forebay.limit_slots where id = any(%(ids)b::text[]) returning scope
)
insert into forebay.limit_releases (scope)
select distinct scope from removed;
