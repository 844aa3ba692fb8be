-- edges_remove: remove the edges to the parents of a removed job.
delete from forebay_dependencies where child_id = :child_id;
