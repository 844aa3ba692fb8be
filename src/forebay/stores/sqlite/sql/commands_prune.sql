-- commands_prune: remove commands that expired an hour ago.
delete from forebay_worker_commands where expires_at <= :before;
