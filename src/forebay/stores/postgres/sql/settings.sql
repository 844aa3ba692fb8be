-- settings: of these queues, and then, without a name, of all queues, dropped ones too; those that are alike once. Relies on the
-- primary key.
select name, settings from forebay.queues where name = any(%(names)b::text[])
union all
select distinct null::text, settings from forebay.queues;
