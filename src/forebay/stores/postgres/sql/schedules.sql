-- schedules: all of them, or those named, by name from the one behind %(after)s on.
select definition, revision, is_paused, next_at, due_at, last_at, last_job_id, fired, skipped, failed, created_at,
       updated_at
from forebay.schedules
where name > %(after)s
  and (%(names)b::text[] is null or name = any(%(names)b::text[]))
order by name
limit %(limit)s;
