-- attempt_of: how this worker has ended this attempt, if it left a row.
select ending
from forebay.attempts
where job_id = %(job_id)s and attempt = %(attempt)s and settled_by = %(worker)s;
