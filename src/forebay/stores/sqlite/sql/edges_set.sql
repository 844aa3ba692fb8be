-- edges_set: how some edges of a job stand from now on.
update forebay_edges set state = :state where child = :child and number in (select value from json_each(:numbers));
