-- settings_of: of these queues. Relies on the primary key.
select name, settings from forebay.queues where name = any(%(names)b::text[]);
