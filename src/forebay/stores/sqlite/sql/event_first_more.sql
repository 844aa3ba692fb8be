-- event_first_more: the row that stands for all events of a job that are not kept.
insert into forebay_events (kind, at, job_id, queue, detail)
values ('more', :at, :job_id, :queue, '1');
