-- parents: the edges that lead to jobs. Relies on the primary key.
select e.child, e.number, e.parent, e.on_failure, e.state
from json_each(:ids) as asked
join forebay_edges e on e.child = asked.value
order by asked.key, e.number;
