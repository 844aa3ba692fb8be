-- settings: settings of these queues, and then without a name those of all queues, dropped ones too; identical ones
-- once.
-- Index: primary key.
select name, settings from forebay.queues where name = any(%(names)b::text[])
union all
select distinct null::text, settings from forebay.queues;
