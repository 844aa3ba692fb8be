-- edges_unchecked: edges of a revived job whose parents had failed, or are open.
select position, parent_id, state from forebay_dependencies where child_id = :child_id and (state = 'failed' or state = 'open') order by position;
