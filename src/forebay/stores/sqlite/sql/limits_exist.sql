-- limits_exist: whether there are limits, or jobs in the lanes of limits that were removed.
select exists (select 1 from forebay_limits) or exists (select 1 from forebay_limit_lanes);
