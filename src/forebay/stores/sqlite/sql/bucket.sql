-- bucket: what is left of the rate of a key.
select parts, at
from forebay_buckets
where scope = :scope;
