-- limits_exist: whether there are limits, or jobs behind the gates of some that there were.
select exists (select 1 from forebay_limits) or exists (select 1 from forebay_limit_lanes);
