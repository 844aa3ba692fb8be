-- metric_save: one row, in the place of the one with the same key.
insert into forebay_metrics (tier, start, queue, worker, body)
values (:tier, :start, :queue, :worker, :body)
on conflict (tier, start, queue, worker) do update
set body = excluded.body;
