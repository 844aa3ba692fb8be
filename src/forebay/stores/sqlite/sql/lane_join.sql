-- lane_join: a job of a share waits behind a limit. A new lane begins a step behind the first.
insert into forebay_lanes (queue, scope, share, turn, resume)
select :queue, :scope, :share,
  coalesce((select min(turn) from forebay_lanes where queue = :queue and scope = :scope), 0) + :step,
  coalesce((select turn from forebay_shares where queue = :queue and share = :share), 0)
where true
on conflict (queue, scope, share) do nothing;
