-- dead_lock: which of these jobs are dead; nobody revives them before the transaction ends.
select id, 'dead' as state from forebay.dead where id = any(%(ids)b::text[]) order by id for key share;
