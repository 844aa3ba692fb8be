-- pending_cancels: running jobs of this worker that are to be stopped.
-- Index: leases_cancel (worker), empty for nearly all workers. Not ordered by id: the primary key would seem as good,
-- and all leases would be read.
select id, cancel_reason
from forebay.leases
where worker = %(worker)s and cancel_reason is not null;
