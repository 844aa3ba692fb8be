-- edges_add: add edges of new jobs that have `on_failure` and state in common.
insert into forebay_dependencies (on_failure, state, child_id, position, parent_id)
select ?, ?, new.*
from (values
(?, ?, ?)
) as new;
