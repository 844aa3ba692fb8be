-- limit_slots_release: release the slots of jobs that do not run any more. The next claim rechecks the lanes of their
-- scopes.
with removed as (
  delete from forebay.limit_slots where id = any(%(ids)b::text[]) returning scope
)
insert into forebay.limit_releases (scope)
select distinct scope from removed;
