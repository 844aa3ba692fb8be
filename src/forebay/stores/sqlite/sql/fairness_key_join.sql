-- fairness_key_join: a share has something to run. One that had nothing begins a step behind the first.
insert into forebay_fairness_keys (queue, fairness_key, virtual_time)
select :queue, :fairness_key, coalesce((select min(virtual_time) from forebay_fairness_keys where queue = :queue), 0) + :step
where true
on conflict (queue, fairness_key) do nothing;
