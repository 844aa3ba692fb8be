-- documents: documents of a kind, all or those named (:names is a JSON array), by name after :after.
select kind, name, body, revision, created_at, updated_at
from forebay_documents
where kind = :kind
  and name > :after
  and (:names is null or name in (select value from json_each(:names)))
order by name
limit :limit;
