-- states: where these jobs are, by id.
select id, state from forebay.all_jobs where id = any(%(ids)b::text[]);
