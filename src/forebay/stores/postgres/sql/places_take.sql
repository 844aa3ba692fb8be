-- places_take: jobs run in these scopes.
insert into forebay.places (scope, id)
select p.scope, p.id
from unnest(%(scopes)b::text[], %(ids)b::text[]) as p (scope, id)
on conflict do nothing;
