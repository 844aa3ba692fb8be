-- freed_take: places have become free: it is time to look behind the gates of their scopes.
with taken as (
  delete from forebay.freed returning scope
)
update forebay.closed
set look_at = 0
where scope in (select scope from taken)
returning queue;
