-- place_take: a job runs in a scope.
insert or ignore into forebay_places (scope, seq, id)
values (:scope, :seq, :id);
