-- edges_add: edges of new jobs that stand alike.
insert into forebay_dependencies (on_failure, state, child_id, position, parent_id)
select ?, ?, new.*
from (values
(?, ?, ?)
) as new;
