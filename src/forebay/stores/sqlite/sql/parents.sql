-- parents: edges that lead to jobs. Index: the primary key.
select e.child_id, e.position, e.parent_id, e.on_failure, e.state
from json_each(:ids) as asked
join forebay_dependencies e on e.child_id = asked.value
order by asked.key, e.position;
