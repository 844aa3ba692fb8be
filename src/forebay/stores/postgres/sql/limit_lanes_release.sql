-- limit_lanes_release: a limit has changed: the next claim rechecks its lanes, those of all values of a key.
insert into forebay.limit_releases (scope)
select distinct scope
from forebay.limit_lanes
where scope = %(scope)s or (scope > %(scope)s || ':' and scope < %(scope)s || '<');
