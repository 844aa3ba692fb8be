-- share_join: a share has something to run. One that had nothing begins a step behind the first.
insert into forebay_shares (queue, share, turn)
select :queue, :share, coalesce((select min(turn) from forebay_shares where queue = :queue), 0) + :step
where true
on conflict (queue, share) do nothing;
