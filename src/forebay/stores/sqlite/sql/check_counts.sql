-- check_counts: counters that differ from what they count.
select c.queue, c.state, c.jobs, coalesce(t.jobs, 0)
from forebay_counts c
left join (
  select queue, state, count(*) as jobs from forebay_all_jobs group by queue, state
) t on t.queue = c.queue and t.state = c.state
where c.jobs <> coalesce(t.jobs, 0)
union all
select t.queue, t.state, 0, t.jobs
from (select queue, state, count(*) as jobs from forebay_all_jobs group by queue, state) t
where not exists (select 1 from forebay_counts c where c.queue = t.queue and c.state = t.state);
