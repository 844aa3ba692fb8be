-- sequences_add_unordered: jobs of a transaction of their caller's, which get their numbers after its commit.
insert into forebay.sequences (name, job_id)
select n.name, n.job_id from unnest(%(names)b::text[], %(ids)b::text[]) as n (name, job_id);
