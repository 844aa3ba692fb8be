-- limit_releases_take: places have become free: it is time to look behind the gates of their scopes.
with taken as (
  delete from forebay.limit_releases returning scope
)
update forebay.limit_lanes
set recheck_at = 0
where scope in (select scope from taken)
returning queue;
