-- renew: extend one lease, never back and never past its longest extension.
-- Guarantees: only while the lease is held (state, attempt, worker). Damaged options count as none.
update forebay_jobs
set lease_expires_at = max(
  lease_expires_at,
  min(
    :now + coalesce(
      :lease_ms,
      iif(json_valid(options), options, null) ->> 'lease_ms',
      (select settings ->> 'lease_ms' from forebay_queues where name = forebay_jobs.queue)
    ),
    started_at + coalesce(iif(json_valid(options), options, null) ->> 'extension_ms', :extension_ms)
  )
)
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running'
  and started_at + coalesce(iif(json_valid(options), options, null) ->> 'extension_ms', :extension_ms) > :now;
