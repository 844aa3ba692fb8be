-- places_over: these attempts have ended in a caller's own transaction; a later attempt keeps its places.
with gone as (
  delete from forebay.places p
  using unnest(%(ids)b::text[], %(attempts)b::bigint[]) as o (id, attempt)
  where p.id = o.id and p.attempt = o.attempt
  returning p.scope
)
insert into forebay.freed (scope)
select distinct scope from gone;
