-- edges_add: edges of new jobs that stand alike.
insert into forebay_edges (on_failure, state, child, number, parent)
select ?, ?, new.*
from (values
(?, ?, ?)
) as new;
