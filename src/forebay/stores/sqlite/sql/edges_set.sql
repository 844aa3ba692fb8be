-- edges_set: set the state of some edges of a job.
update forebay_dependencies set state = :state where child_id = :child_id and position in (select value from json_each(:positions));
