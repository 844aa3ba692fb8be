-- limit_slots_take: give attempts their slots in these scopes.
insert into forebay.limit_slots (scope, id, attempt)
select p.scope, p.id, p.attempt
from unnest(%(scopes)b::text[], %(ids)b::text[], %(attempts)b::bigint[]) as p (scope, id, attempt)
on conflict (scope, id) do update set attempt = excluded.attempt;
