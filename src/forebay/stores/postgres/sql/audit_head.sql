-- audit_head: the newest entry of the chain.
select position, hash
from forebay.audit
where position is not null
order by position desc
limit 1;
