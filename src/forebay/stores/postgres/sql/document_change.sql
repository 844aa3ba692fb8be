-- document_change: write a document in the place of the one that was seen. An answer means that it is written: who waits
-- for another writer finds the revision that this one has left.
update forebay.documents
set body = %(body)s,
    revision = revision + 1,
    updated_at = %(now)s
where kind = %(kind)s
  and name = %(name)s
  and revision = %(revision)s
returning 1;
