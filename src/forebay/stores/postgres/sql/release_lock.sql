-- release_lock: lock the rows of jobs that several statements are going to release.
-- Locks: by id, as everywhere.
select 1 from forebay.jobs where id = any(%(ids)b::text[]) order by id for no key update;
