-- options: a live job's settings as they are stored; a newer program may have put more there than we know.
select options from forebay.jobs where id = %(id)s;
