-- places_take: jobs run in these scopes.
insert or ignore into forebay_places (scope, seq, id)
values
(?, ?, ?)
;
