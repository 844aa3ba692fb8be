-- import_release_ids: delete the placeholders of `import_reserve_ids` in the same transaction, to make room for the
-- jobs.
delete from forebay.jobs where id = any(%(ids)b::text[]);
