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

-- name: audit_prune: delete the oldest entries of the chain up to the last one past its retention, at most `limit`.
-- Guarantees: that last one stays as the anchor, since it carries the hash that the next entry names. Entries outside
-- the chain stay.
delete from forebay.audit
where position < coalesce(
    (
      select position
      from forebay.audit
      where position is not null
        and occurred_at > :before
      order by position
      limit 1
    ),
    (select max(position) + 1 from forebay.audit)
  ) - 1
  and position < :limit + (select min(position) from forebay.audit);

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
