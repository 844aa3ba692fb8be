-- cancel_request: store the wish that a running job shall stop; the first wish stays.
update forebay_jobs
set cancel_reason = :reason
where seq = :seq
  and id = :job_id
  and state = 'running'
  and cancel_reason is null
returning queue;
