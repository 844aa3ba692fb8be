-- count_unstarted: record how many attempts of a running job never began, before the job is put back or ended.
-- Guarantees: only for the holder of the lease, which `held` has checked in this write transaction. Other members
-- stay as they are, they may come from a newer program; so does a damaged text, which readers show as it is.
-- Index: primary key.
update forebay_jobs
set options = json_set(coalesce(options, '{}'), '$.unstarted', :unstarted)
where seq = :seq
  and (options is null or json_valid(options));
