-- bucket: what is left of a rate at which a queue takes jobs.
select parts, at
from forebay.buckets
where scope = %(scope)s;
