-- closed_look: a limit has changed: whoever claims next looks behind its gates, those of all values of a key.
insert into forebay.freed (scope)
select distinct scope
from forebay.closed
where scope = %(scope)s or (scope > %(scope)s || ':' and scope < %(scope)s || '<');
