-- completed_among: those of these jobs that have completed. That never changes.
select id, state from forebay.finished where id = any(%(ids)b::text[]) and state = 'completed';
