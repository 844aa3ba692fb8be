-- edges_after: open edges of a job that has completed, from one on. Relies on index forebay_edges_parent.
select child, number
from forebay_edges
where parent = :parent and state = 'open' and (child, number) > (:after_child, :after_number)
order by child, number
limit :limit;
