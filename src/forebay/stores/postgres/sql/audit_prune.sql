-- audit_prune: forget the oldest lines of the chain, at most so many, up to the last one that is old. That one stays as the
-- anchor: it carries the hash that the line behind it names. Lines outside the chain stay.
delete from forebay.audit
where position < coalesce(
    (
      select position
      from forebay.audit
      where position is not null
        and occurred_at > %(before)s
      order by position
      limit 1
    ),
    (select max(position) + 1 from forebay.audit)
  ) - 1
  and position < %(limit)s + (select min(position) from forebay.audit);
