-- attempt_of: whether this worker has already written down the end of this attempt.
select 1
from forebay.attempts
where job_id = %(job_id)s and attempt = %(attempt)s and settled_by = %(worker)s;
