-- limit_lanes_save: jobs wait behind a gate; when to look there.
insert into forebay_limit_lanes (queue, scope, recheck_at)
values (:queue, :scope, :recheck_at)
on conflict (queue, scope) do update set recheck_at = excluded.recheck_at;
