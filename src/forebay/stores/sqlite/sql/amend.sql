-- amend: change a job that is still in the state it was looked at in.
update forebay_jobs
set state = :state,
    priority = :priority,
    metadata = :metadata,
    run_at = :run_at,
    ready_at = :ready_at,
    rank = :rank,
    capped = :capped,
    rescore_at = :rescore_at,
    updated_at = :now
where id = :job_id
  and state = :was;
