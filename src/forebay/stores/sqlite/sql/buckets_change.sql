-- buckets_change: a limit by key has another rate: what is left for each value stays left. Parts are counted anew.
update forebay_buckets
set parts = min(:full, min(:old_full, parts + max(0, :now - at) * :old_rate) * :per_ms / :old_per_ms),
    at = :now
where scope > :scope || ':' and scope < :scope || '<';
