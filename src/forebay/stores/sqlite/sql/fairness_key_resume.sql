-- fairness_key_resume: a share has something to run, and may have lanes behind limits. One with lanes goes on from the turn that
-- they have kept, at most a step from the first (`domain.share.resuming`); another one begins a step behind the first.
-- Relies on index forebay_lanes_share.
insert into forebay_fairness_keys (queue, fairness_key, virtual_time)
select :queue, :fairness_key,
  case
    when l.resume_virtual_time is null then coalesce(f.virtual_time, 0) + :step
    when f.virtual_time is null then l.resume_virtual_time
    else max(f.virtual_time - :step, min(l.resume_virtual_time, f.virtual_time + :step))
  end
from (select min(virtual_time) as virtual_time from forebay_fairness_keys where queue = :queue) as f
cross join (select max(resume_virtual_time) as resume_virtual_time from forebay_limit_fairness_lanes where queue = :queue and fairness_key = :fairness_key) as l
where true
on conflict (queue, fairness_key) do nothing;
