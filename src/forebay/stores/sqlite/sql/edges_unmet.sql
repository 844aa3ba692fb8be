-- edges_unmet: how many edges block a job that is revived.
select count(*) from forebay_dependencies where child_id = :child_id and (state = 'open' or state = 'held');
