-- acquire_maintenance: an answer means the duty is the caller's. A transaction by itself, since idle workers ask all the time. Of two at once the second waits for the first and then
-- finds its time in the future. A time that lies further ahead than the duty's own pace was written before the
-- clock was set back.
insert into forebay.maintenance as d (name, due_at)
values (%(name)s::text, forebay.now_ms() + %(every_ms)s::bigint)
on conflict (name) do update
set due_at = excluded.due_at
where d.due_at <= forebay.now_ms()
   or d.due_at > forebay.now_ms() + %(every_ms)s
returning 1::bigint;
