-- cancel_request: store the request to stop a running job; an earlier request stays. The lease is locked.
update forebay.leases
set cancel_reason = %(reason)s
where id = %(job_id)s and cancel_reason is null
returning queue;
