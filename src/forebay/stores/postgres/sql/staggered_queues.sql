-- staggered_queues: queues whose jobs become pending a few at a time.
select name from forebay.queues where settings::json ->> 'promote_per_second' is not null order by name;
