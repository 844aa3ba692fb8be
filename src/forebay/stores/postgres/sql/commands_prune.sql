-- commands_prune: commands that ended an hour ago.
delete from forebay.worker_commands where expires_at <= %(before)s;
