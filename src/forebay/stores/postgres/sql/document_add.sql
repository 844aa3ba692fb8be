-- document_add: store a new document. A row means that it is stored: of two inserts of one name at once the second
-- waits for the first and gets none.
insert into forebay.documents (kind, name, body, revision, created_at, updated_at)
values (%(kind)s, %(name)s, %(body)s, %(revision)s + 1, %(now)s, %(now)s)
on conflict (kind, name) do nothing
returning 1;
