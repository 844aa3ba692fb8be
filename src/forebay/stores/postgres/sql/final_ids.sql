-- final_ids: those of these ids that a finished or dead job has. It runs after the insert of ids given by callers. A
-- job that was being settled during that insert is visible here, since the insert waited for it.
select id from forebay.finished where id = any(%(ids)b::text[])
union all
select id from forebay.dead where id = any(%(ids)b::text[]);
