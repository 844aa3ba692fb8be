-- documents: documents of a kind, all or by name, ordered by name behind `after`.
select kind, name, body, revision, created_at, updated_at
from forebay.documents
where kind = %(kind)s
  and name > %(after)s
  and (%(names)b::text[] is null or name = any(%(names)b::text[]))
order by name
limit %(limit)s;
