-- cancel_request: store the wish that a running job shall stop; the first wish stays. The row is locked.
update forebay.leases
set cancel_reason = %(reason)s
where id = %(job_id)s and cancel_reason is null
returning queue;
