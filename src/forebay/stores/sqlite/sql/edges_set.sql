-- edges_set: how some edges of a job stand from now on.
update forebay_dependencies set state = :state where child_id = :child_id and position in (select value from json_each(:positions));
