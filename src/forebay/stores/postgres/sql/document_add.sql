-- document_add: write a document that is new. An answer means that it is written: of two who add one of the same name at
-- once the second waits for the first and gets none.
insert into forebay.documents (kind, name, body, revision, created_at, updated_at)
values (%(kind)s, %(name)s, %(body)s, %(revision)s + 1, %(now)s, %(now)s)
on conflict (kind, name) do nothing
returning 1;
