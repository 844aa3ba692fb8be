-- completed_among: which of these jobs have completed. That stays so.
select id, state from forebay.finished where id = any(%(ids)b::text[]) and state = 'completed';
