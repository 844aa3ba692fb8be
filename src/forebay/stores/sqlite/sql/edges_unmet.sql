-- edges_unmet: how many edges block a job that is revived.
select count(*) from forebay_edges where child = :child and (state = 'open' or state = 'held');
