-- edges_reopen: edges of failed parents of a job that is revived.
update forebay_edges set state = :state where child = :child and state = 'failed';
