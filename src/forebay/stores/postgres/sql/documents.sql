-- name: document_add: store a new document. A row means that it is stored: of two inserts of one name at once the
-- second waits for the first and gets none.
insert into forebay.documents (kind, name, body, revision, created_at, updated_at)
values (%(kind)s, %(name)s, %(body)s, %(revision)s + 1, %(now)s, %(now)s)
on conflict (kind, name) do nothing
returning 1;

-- name: document_change: replace a document of a known revision. A row means that it is stored: a writer that waits for
-- another one finds the newer revision.
update forebay.documents
set body = %(body)s,
    revision = revision + 1,
    updated_at = %(now)s
where kind = %(kind)s
  and name = %(name)s
  and revision = %(revision)s
returning 1;

-- name: documents: documents of a kind, all or by name, ordered by name behind `after`.
select kind, name, body, revision, created_at, updated_at
from forebay.documents
where kind = %(kind)s
  and name > %(after)s
  and (%(names)b::text[] is null or name = any(%(names)b::text[]))
order by name
limit %(limit)s;
