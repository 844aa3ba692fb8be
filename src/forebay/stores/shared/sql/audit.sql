-- name: audit_chain: entries of the chain after a position.
select position, previous, hash, id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where position > :after
order by position
limit :limit;

-- name: audit_head: newest entry of the chain.
select position, hash
from forebay.audit
where position is not null
order by position desc
limit 1;

-- name: audit_link: append an entry to the chain.
update forebay.audit
set position = :position, previous = :previous, hash = :hash
where id = :id;

-- name: audit_rest: number of entries outside the chain.
-- Index: the unique one on positions; on PostgreSQL audit_unchained.
select count(*) from forebay.audit where position is null;

-- name: audit_unchained: committed entries outside the chain, lowest id first. A transaction may commit a lower id
-- after this query; the next query finds it.
-- Index: the unique one on positions; on PostgreSQL audit_unchained.
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where position is null
order by id
limit :limit;
