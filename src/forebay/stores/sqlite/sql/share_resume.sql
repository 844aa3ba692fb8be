-- share_resume: a share has something to run, and may have lanes behind limits. One with lanes goes on from the turn that
-- they have kept, at most a step from the first (`domain.share.resuming`); another one begins a step behind the first.
-- Relies on index forebay_lanes_share.
insert into forebay_shares (queue, share, turn)
select :queue, :share,
  case
    when l.resume is null then coalesce(f.turn, 0) + :step
    when f.turn is null then l.resume
    else max(f.turn - :step, min(l.resume, f.turn + :step))
  end
from (select min(turn) as turn from forebay_shares where queue = :queue) as f
cross join (select max(resume) as resume from forebay_lanes where queue = :queue and share = :share) as l
where true
on conflict (queue, share) do nothing;
