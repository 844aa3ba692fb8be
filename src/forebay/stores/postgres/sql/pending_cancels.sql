-- pending_cancels: jobs this worker runs that somebody wants stopped.
-- Relies on index leases_cancel (worker), empty for nearly all workers. Not ordered by id: the primary key would seem
-- to be as good then, and all leases would be read.
select id, cancel_reason
from forebay.leases
where worker = %(worker)s and cancel_reason is not null;
