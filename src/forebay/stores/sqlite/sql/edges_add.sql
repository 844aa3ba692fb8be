-- edges_add: edges of new jobs.
insert into forebay_edges (child, number, parent, on_failure, state)
values
(?, ?, ?, ?, ?)
;
