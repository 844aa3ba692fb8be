-- document_change: replace a document of a known revision. A row means that it is stored: a writer that waits for
-- another one finds the newer revision.
update forebay.documents
set body = %(body)s,
    revision = revision + 1,
    updated_at = %(now)s
where kind = %(kind)s
  and name = %(name)s
  and revision = %(revision)s
returning 1;
