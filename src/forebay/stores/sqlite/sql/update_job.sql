-- update_job: update a job that is still in :old_state.
update forebay_jobs
set state = :state,
    queue = :queue,
    -- In another queue a claim decides anew which lane it belongs to.
    lane = iif(:is_moved, null, lane),
    priority = :priority,
    -- Only this member: others may come from a newer program.
    options = case
      when :metadata is null then options
      else json_set(coalesce(iif(json_valid(options), options, null), '{}'), '$.metadata', json(:metadata))
    end,
    run_at = :run_at,
    ready_at = :ready_at,
    rank = :rank,
    age_capped = :age_capped,
    -- A job that keeps its rank keeps the time of its rescore.
    rescore_at = iif(:has_rank, :rescore_at, rescore_at),
    updated_at = :now
where seq = :seq
  and id = :job_id
  and state = :old_state;
