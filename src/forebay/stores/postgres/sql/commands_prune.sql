-- commands_prune: commands that ended an hour ago.
delete from forebay.commands where expires_at <= %(before)s;
