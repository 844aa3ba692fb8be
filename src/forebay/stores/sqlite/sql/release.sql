-- release: a blocked job waits like any other, from now on or from its time on.
update forebay_jobs
set state = :state,
    ready_at = :ready_at,
    run_at = :ready_at,
    rank = :rank,
    capped = :capped,
    rescore_at = :rescore_at,
    updated_at = :now
where seq = :seq and state = 'blocked';
