-- final_ids: which of these ids a finished or dead job has. Asked after the insert of ids that callers brought:
-- a job that was being settled while we inserted its id is seen here, since our insert has waited for it.
select id from forebay.finished where id = any(%(ids)b::text[])
union all
select id from forebay.dead where id = any(%(ids)b::text[]);
