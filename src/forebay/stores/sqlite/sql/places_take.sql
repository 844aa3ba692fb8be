-- places_take: jobs run in these scopes.
insert or ignore into forebay_places (scope, seq, id)
select value ->> 0, value ->> 1, value ->> 2
from json_each(:places);
