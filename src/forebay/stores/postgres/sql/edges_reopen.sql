-- edges_reopen: edges of failed parents of a job that is revived.
update forebay.edges set state = %(state)s::text where child = %(child)s and state = 'failed';
