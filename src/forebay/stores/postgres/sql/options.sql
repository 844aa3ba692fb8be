-- options: options of a live job as stored; a newer program may have added more than this one knows.
select options from forebay.jobs where id = %(id)s;
