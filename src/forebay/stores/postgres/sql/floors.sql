-- floors: from where on duties look, and until when that is enough.
select name, walked_to, due_at from forebay.duties where name = any(%(names)b::text[]);
