-- edges_reopen: edges of failed parents of jobs that are revived.
update forebay.edges set state = %(state)s::text where child = any(%(children)b::text[]) and state = 'failed';
