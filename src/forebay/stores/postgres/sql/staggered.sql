-- staggered: queues whose jobs become pending a few at a time.
select name from forebay.queues where settings ~ '"promote_per_second":\d' order by name;
