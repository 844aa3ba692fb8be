-- closed_save: jobs wait behind a gate; when to look there.
insert into forebay_closed (queue, scope, look_at)
values (:queue, :scope, :look_at)
on conflict (queue, scope) do update set look_at = excluded.look_at;
