-- limit_releases_take: slots were released: the lanes of their scopes are rechecked now.
with taken as (
  delete from forebay.limit_releases returning scope
)
update forebay.limit_lanes
set recheck_at = 0
where scope in (select scope from taken)
returning queue;
