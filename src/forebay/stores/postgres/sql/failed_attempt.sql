-- failed_attempt: the outcome by which this worker has settled this attempt, if it left a row.
select outcome
from forebay.failed_attempts
where job_id = %(job_id)s and attempt = %(attempt)s and settled_by = %(worker)s;
