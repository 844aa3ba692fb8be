-- walk_save: remember how far a duty has come.
insert into forebay_duties (name, due_at, walked_to)
values (:name, 0, :walked_to)
on conflict (name) do update
set walked_to = excluded.walked_to;
