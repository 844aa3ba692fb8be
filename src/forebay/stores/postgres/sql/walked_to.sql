-- walked_to: how far a duty that goes through the jobs by seq has come.
select coalesce((select walked_to from forebay.duties where name = %(name)s), 0);
