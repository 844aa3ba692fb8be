-- aftermath_add: put jobs on the list if others depend on them, or come after them in a sequence. Relies on the indexes
-- forebay_edges_parent and forebay_sequences_id.
insert into forebay_aftermaths (parent, aftermath)
select value, :aftermath
from json_each(:parents)
where exists (select 1 from forebay_edges where parent = value)
  or exists (select 1 from forebay_sequences where id = value)
order by key;
