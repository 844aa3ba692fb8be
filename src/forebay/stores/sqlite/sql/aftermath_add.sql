-- aftermath_add: put jobs on the list if others depend on them. Relies on index forebay_edges_parent.
insert into forebay_aftermaths (parent, aftermath)
select value, :aftermath
from json_each(:parents)
where exists (select 1 from forebay_edges where parent = value)
order by key;
