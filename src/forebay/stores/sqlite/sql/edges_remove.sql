-- edges_remove: the edges to the parents of a job that goes.
delete from forebay_dependencies where child_id = :child_id;
