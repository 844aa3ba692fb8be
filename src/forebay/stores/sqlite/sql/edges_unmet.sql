-- edges_unmet: number of edges that block a revived job.
select count(*) from forebay_dependencies where child_id = :child_id and (state = 'open' or state = 'held');
