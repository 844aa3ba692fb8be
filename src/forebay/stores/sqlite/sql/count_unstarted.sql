-- count_unstarted: record how many attempts of a running job never began, before it goes back to waiting or
-- ends.
-- Guarantees: only for the lease holder, which `lease_details` has checked in this write transaction. Other
-- members stay: they may come from a newer program. A damaged text stays, too; readers show it as it is.
-- Index: primary key.
update forebay_jobs
set options = json_set(coalesce(options, '{}'), '$.unstarted', :unstarted)
where seq = :seq
  and (options is null or json_valid(options));
