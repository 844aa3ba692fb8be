-- documents: all of a kind, or those named, by name from the one behind %(after)s on.
select kind, name, body, revision, created_at, updated_at
from forebay.documents
where kind = %(kind)s
  and name > %(after)s
  and (%(names)b::text[] is null or name = any(%(names)b::text[]))
order by name
limit %(limit)s;
