-- parents: edges that lead to jobs. Index: the primary key.
select e.child_id, e.position, e.parent_id, e.on_failure, e.state
from json_each(:ids) as children
join forebay_dependencies e on e.child_id = children.value
order by children.key, e.position;
