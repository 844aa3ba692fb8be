-- sequences_later: jobs of a transaction of their caller's, which get their numbers after its commit.
insert into forebay.sequences (name, id)
select n.name, n.id from unnest(%(names)b::text[], %(ids)b::text[]) as n (name, id);
