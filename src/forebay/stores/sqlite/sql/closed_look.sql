-- closed_look: a limit has changed: whoever claims next looks behind its gates, those of all values of a key.
update forebay_closed
set look_at = 0
where scope = :scope or (scope > :scope || ':' and scope < :scope || '<');
