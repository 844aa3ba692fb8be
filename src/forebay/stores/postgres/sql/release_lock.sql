-- release_lock: hold the rows of jobs that several statements are going to release. In the order of ids, as everybody who
-- locks several.
select 1 from forebay.jobs where id = any(%(ids)b::text[]) order by id for no key update;
