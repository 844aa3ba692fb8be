-- states: states of jobs, by id.
select id, state from forebay.all_jobs where id = any(%(ids)b::text[]);
