-- insert: one new live job. The id's unique index is the guard against an id that is taken by a live job;
-- ids that a caller brings are looked up among the final ones before (see `taken_id`).
insert into forebay_jobs (
  id, queue, task, state, payload, priority, policy, created_at, updated_at, ready_at, run_at, rank,
  rescore_at, lease_ms, extension_ms, timeout_ms, deadline_at, expires_at, unique_key, unique_until,
  once_key, metadata, tags, correlation_id, parent_id
)
values (
  :id, :queue, :task, :state, :payload, :priority, :policy, :now, :now, :due_at, :due_at, :rank,
  :rescore_at, :lease_ms, :extension_ms, :timeout_ms, :deadline_at, :expires_at, :unique_key,
  :unique_until, :once_key, :metadata, :tags, :correlation_id, :parent_id
);
