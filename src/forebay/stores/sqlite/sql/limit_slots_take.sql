-- limit_slots_take: add slots of running jobs.
insert or ignore into forebay_limit_slots (scope, seq, id)
values
(?, ?, ?)
;
