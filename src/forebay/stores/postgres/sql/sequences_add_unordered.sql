-- sequences_add_unordered: store jobs of a caller transaction, which get their positions after its commit.
insert into forebay.sequences (name, job_id)
select n.name, n.job_id from unnest(%(names)b::text[], %(ids)b::text[]) as n (name, job_id);
