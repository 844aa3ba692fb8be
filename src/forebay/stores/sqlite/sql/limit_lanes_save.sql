-- limit_lanes_save: save when the lane of a limit with parked jobs is to be rechecked.
insert into forebay_limit_lanes (queue, scope, recheck_at)
values (:queue, :scope, :recheck_at)
on conflict (queue, scope) do update set recheck_at = excluded.recheck_at;
