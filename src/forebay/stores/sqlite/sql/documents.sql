-- name: document_save: save a document in place of the one with :revision, or of none. A returned row means that it
-- is written.
insert into forebay_documents as d (kind, name, body, revision, created_at, updated_at)
select :kind, :name, :body, :revision + 1, :now, :now
where :revision = coalesce(
  (select revision from forebay_documents where kind = :kind and name = :name), 0
)
on conflict (kind, name) do update
set body = excluded.body,
    revision = excluded.revision,
    updated_at = excluded.updated_at
returning 1;

-- name: documents: documents of a kind, all or those named (:names is a JSON array), by name after :after.
select kind, name, body, revision, created_at, updated_at
from forebay_documents
where kind = :kind
  and name > :after
  and (:names is null or name in (select value from json_each(:names)))
order by name
limit :limit;
