-- import_release_ids: what `adopt_hold` has written makes room for the jobs themselves, in the same transaction.
delete from forebay.jobs where id = any(%(ids)b::text[]);
