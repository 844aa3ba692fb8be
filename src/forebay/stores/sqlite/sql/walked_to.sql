-- walked_to: how far a duty that goes through the jobs by seq has come.
select coalesce((select walked_to from forebay_duties where name = :name), 0);
