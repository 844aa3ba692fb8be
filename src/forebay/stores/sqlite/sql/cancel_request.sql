-- cancel_request: store a request to stop a running job; the first request stays.
update forebay_jobs
set cancel_reason = :reason
where seq = :seq
  and id = :job_id
  and state = 'running'
  and cancel_reason is null
returning queue;
