-- commands_prune: delete commands that expired an hour ago.
delete from forebay.worker_commands where expires_at <= %(before)s;
