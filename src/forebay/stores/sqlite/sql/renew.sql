-- renew: push the end of one lease away, never back and never past its longest extension.
-- Guarantees: only while the lease is held (state, attempt, worker).
update forebay_jobs
set lease_expires_at = max(
  lease_expires_at,
  min(:now + coalesce(:lease_ms, lease_ms, :queue_lease_ms), started_at + extension_ms)
)
where id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running'
  and started_at + extension_ms > :now;
