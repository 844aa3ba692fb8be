-- cancels: jobs this worker runs that somebody wants stopped.
-- Relies on index leases_cancel (worker), empty for nearly all workers.
select id, cancel_reason
from forebay.leases
where worker = %(worker)s and cancel_reason is not null
order by id;
