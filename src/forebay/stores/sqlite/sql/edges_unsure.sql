-- edges_unsure: the edges of a job that is revived whose parents had failed, or have not ended or completed.
select number, parent, state from forebay_edges where child = :child and (state = 'failed' or state = 'open') order by number;
