-- search_reached: when the job at which a look has ended was created.
select created_at from forebay.listing where seq = %(seq)s limit 1;
