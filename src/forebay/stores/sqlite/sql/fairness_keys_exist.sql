-- fairness_keys_exist: whether there are jobs with a fairness key, or were lately.
select exists (select 1 from forebay_fairness_keys);
