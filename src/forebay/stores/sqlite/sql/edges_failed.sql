-- edges_failed: the edges of a job that is revived whose parents had failed.
select number, parent from forebay_edges where child = :child and state = 'failed' order by number;
