-- firings_trim: keep the newest :kept lines of a schedule's history.
-- Relies on index forebay_firings_of (name, number).
delete from forebay_firings
where number in (
  select number
  from forebay_firings
  where name = :name
  order by number desc
  limit -1 offset :kept
);
