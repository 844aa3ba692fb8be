-- shares_come: jobs of these shares have become pending.
insert into forebay.shares (queue, share)
select queue, share from unnest(%(queues)b::text[], %(shares)b::text[]) as c (queue, share);
