-- places_free: these jobs do not run any more. Whoever claims next looks behind the gates of their scopes.
with gone as (
  delete from forebay.places where id = any(%(ids)b::text[]) returning scope
)
insert into forebay.freed (scope)
select distinct scope from gone;
