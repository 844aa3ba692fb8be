-- once_until: until when a job holds its once key.
select until
from forebay.keys
where queue = %(queue)s and kind = 'once' and key = %(key)s and job_id = %(job_id)s;
