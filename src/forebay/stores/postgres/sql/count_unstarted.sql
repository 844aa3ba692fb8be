-- count_unstarted: record how many attempts of a running job never began, before the job is put back or ended.
-- Guarantees: only for the holder of the lease, which the caller has locked and compared.
-- Index: primary key. No change of JSON here: jsonb refuses texts with a NUL, which metadata may have.
update forebay.jobs set options = %(options)s::text where id = %(id)s;
