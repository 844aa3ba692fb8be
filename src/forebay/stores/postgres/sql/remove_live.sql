-- remove_live: delete a job whose narrow row this transaction has removed.
delete from forebay.jobs where id = %(id)s returning queue, unique_key;
