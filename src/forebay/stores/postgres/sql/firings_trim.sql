-- firings_trim: keep the newest %(kept)s lines of a schedule's history.
-- Relies on index firings_of (name, number).
delete from forebay.firings
where number in (
  select number
  from forebay.firings
  where name = %(name)s
  order by number desc
  offset %(kept)s
);
