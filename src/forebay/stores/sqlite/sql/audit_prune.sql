-- audit_prune: remove the oldest lines of the chain, at most :max_rows, up to the last one past the
-- retention.
-- That one stays as the anchor: it has the hash that the next line names. Lines outside the chain stay.
delete from forebay_audit
where position < coalesce(
    (
      select position
      from forebay_audit
      where position is not null
        and occurred_at > :before
      order by position
      limit 1
    ),
    (select max(position) + 1 from forebay_audit)
  ) - 1
  and position < :max_rows + (select min(position) from forebay_audit);
