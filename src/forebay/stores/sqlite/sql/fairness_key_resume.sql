-- fairness_key_resume: add a fairness key that has pending jobs, and may have lanes at limits. With lanes it
-- resumes from their stored virtual time, at most one step from the first
-- (`domain.fairness.resuming_virtual_time`); without lanes it begins one step behind the first.
-- Index: forebay_limit_fairness_lanes_key.
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
