-- limit_slots_release_ended: these attempts have ended in a caller's own transaction; a later attempt keeps its places.
with removed as (
  delete from forebay.limit_slots p
  using unnest(%(ids)b::text[], %(attempts)b::bigint[]) as o (id, attempt)
  where p.id = o.id and p.attempt = o.attempt
  returning p.scope
)
insert into forebay.limit_releases (scope)
select distinct scope from removed;
