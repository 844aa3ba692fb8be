-- edges_unchecked: the edges of a job that is revived whose parents had failed, or have not ended or completed.
select position, parent_id, state from forebay_dependencies where child_id = :child_id and (state = 'failed' or state = 'open') order by position;
