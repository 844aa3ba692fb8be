-- limit_slots_release_ended: release the slots of attempts that a caller transaction has ended; a later attempt keeps
-- its slots.
with removed as (
  delete from forebay.limit_slots p
  using unnest(%(ids)b::text[], %(attempts)b::bigint[]) as o (id, attempt)
  where p.id = o.id and p.attempt = o.attempt
  returning p.scope
)
insert into forebay.limit_releases (scope)
select distinct scope from removed;
