-- fairness_keys_add: record that jobs of these fairness keys have become pending.
insert into forebay.fairness_keys (queue, fairness_key)
select queue, fairness_key from unnest(%(queues)b::text[], %(fairness_keys)b::text[]) as c (queue, fairness_key);
