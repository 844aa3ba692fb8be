-- fairness_key_join: add a fairness key that has pending jobs. It begins one step behind the first.
insert into forebay_fairness_keys (queue, fairness_key, virtual_time)
select :queue, :fairness_key, coalesce((select min(virtual_time) from forebay_fairness_keys where queue = :queue), 0) + :step
where true
on conflict (queue, fairness_key) do nothing;
