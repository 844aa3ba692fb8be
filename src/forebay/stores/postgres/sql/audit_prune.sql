-- audit_prune: delete the oldest entries of the chain up to the last one past its retention, at most `limit`.
-- Guarantees: that last one stays as the anchor, since it carries the hash that the next entry names. Entries outside
-- the chain stay.
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
