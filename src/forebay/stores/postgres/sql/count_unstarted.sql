-- count_unstarted: store how many attempts of a running job never began, before the job is returned or settled.
-- Guarantees: only for the holder of the lease, which the caller has locked and compared.
-- Index: primary key. The text is replaced as a whole: jsonb refuses texts with a NUL, which metadata may have.
update forebay.jobs set options = %(options)s::text where id = %(id)s;
