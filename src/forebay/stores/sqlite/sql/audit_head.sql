-- audit_head: newest line of the chain.
select position, hash
from forebay_audit
where position is not null
order by position desc
limit 1;
