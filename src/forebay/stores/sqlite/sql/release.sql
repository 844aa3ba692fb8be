-- release: release blocked jobs: they wait like any others, from now on or from their due time on.
update forebay_jobs
set state = :state,
    ready_at = :ready_at,
    run_at = :ready_at,
    rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at,
    unmet = 0,
    updated_at = :now
where seq in (select value from json_each(:seqs)) and state = 'blocked';
