-- walk_save: remember how far a duty has come.
insert into forebay.duties (name, due_at, walked_to)
values (%(name)s, 0, %(walked_to)s)
on conflict (name) do update
set walked_to = excluded.walked_to;
