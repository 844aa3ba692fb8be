-- audit: the audit log, and events that are no actions, newest first. The two have one series of numbers.
select number, kind, at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where number < coalesce(%(after)s::bigint, 9223372036854775807)
union all
select number, kind, at, job_id, queue, attempt, actor, detail, changes
from forebay.events
where number < coalesce(%(after)s::bigint, 9223372036854775807)
  and kind <> all(array(select json_array_elements_text(%(actions)s::text::json)))
order by number desc
limit %(limit)s;
