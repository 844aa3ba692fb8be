-- limit_slots_take: jobs run in these scopes.
insert or ignore into forebay_limit_slots (scope, seq, id)
values
(?, ?, ?)
;
