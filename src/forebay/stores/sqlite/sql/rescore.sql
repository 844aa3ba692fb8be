-- rescore: set a new rank of a job that is still pending.
update forebay_jobs
set rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at
where seq = :seq
  and state = 'pending';
