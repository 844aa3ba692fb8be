// Made by `make reference` from the service's own description; do not edit.

export interface AckRequest {
  lease: string;
  result?: unknown;
  cost?: number | null;
}

export interface ActionResponse {
  id: string;
  applied: boolean;
  state: JobState | null;
  reason?: string;
}

export interface AlertList {
  alerts: AlertView[];
}

export interface AlertRuleList {
  rules: AlertRuleView[];
  metrics: Record<string, string>;
}

export interface AlertRuleView {
  id: string;
  name: string;
  condition: string;
  severity: Severity;
  window_seconds: number;
  hold_for_seconds: number;
  cooldown_seconds: number;
  enabled: boolean;
  queue: string | null;
  task: string | null;
  per: AlertScope | null;
  is_builtin: boolean;
}

export type AlertScope = "queue" | "task";

export interface AlertView {
  id: string;
  severity: Severity;
  source: string;
  message: string;
  condition: string;
  rule: string | null;
  is_active: boolean;
  triggered_at: string;
  acknowledged_at: string | null;
  acknowledged_by: string;
  resolved_at: string | null;
  resolved_by: string;
  metadata: Record<string, unknown>;
}

export interface AttemptView {
  attempt: number;
  outcome: OutcomeKind;
  worker: string | null;
  started_at: string | null;
  ended_at: string;
  duration_seconds: number | null;
  error_type: string;
  error: string;
  traceback: string;
}

export interface AuditCheckRequest {
  after?: number;
  limit?: number;
}

export interface AuditCheckResponse {
  is_sound: boolean;
  lines: number;
  position: number | null;
  hash: string | null;
  unchained: number;
  flaw_position: number | null;
  flaw_number: number | null;
  reason: string;
  next_after: number | null;
}

export interface AuditEntry {
  number: number;
  at: string;
  kind: EventKind;
  actor: string;
  request: string;
  queue: string | null;
  job_id: string | null;
  detail: string;
  before: Record<string, unknown>;
  after: Record<string, unknown>;
}

export interface AuditEventView {
  number: number;
  kind: string;
  at: string;
  job_id: string | null;
  queue: string | null;
  attempt: number | null;
  actor: string | null;
  detail: string;
}

export interface AuditEvents {
  lines: AuditEventView[];
}

export interface AuditRequest {
  kinds?: EventKind[] | null;
  all?: boolean;
  actor?: string | null;
  request?: string | null;
  queue?: string | null;
  job_id?: string | null;
  since?: string | null;
  until?: string | null;
  limit?: number;
  after?: number | null;
}

export interface AuditResponse {
  lines: AuditEntry[];
  after: number | null;
  has_more: boolean;
}

export interface BulkRequest {
  action: "cancel" | "delete" | "revive";
  where?: JobFilter;
  all?: boolean;
  dry_run?: boolean;
  reason?: string;
  queue?: string | null;
  delay_seconds?: number;
  reset?: boolean;
}

export interface BulkResponse {
  matched: number;
  matched_is_exact: boolean;
  affected: number;
  dry_run: boolean;
  busy: number;
}

export interface CallView {
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  payload_base64?: string | null;
  payload_error?: string | null;
}

export interface CancelRequest {
  reason?: string;
  dependants?: boolean;
  force?: boolean;
}

export type CatchUp = "all" | "latest" | "none";

export interface ChangeResponse {
  applied: boolean;
}

export interface ChannelList {
  channels: ChannelView[];
}

export interface ChannelRequest {
  kind: "email" | "webhook";
  severity?: Severity;
  enabled?: boolean;
  url?: string | null;
  secret?: string | null;
  to?: string[];
  sender?: string | null;
  host?: string | null;
  port?: number;
  tls?: TlsMode;
  username?: string;
  password?: string | null;
}

export interface ChannelView {
  name: string;
  kind: "email" | "webhook";
  severity: Severity;
  enabled: boolean;
  url?: string | null;
  secret?: string | null;
  to?: string[];
  sender?: string | null;
  host?: string | null;
  port?: number | null;
  tls?: TlsMode | null;
  username?: string | null;
  password?: string | null;
}

export interface ClaimCriteria {
  queues?: string[];
  tasks?: string[] | null;
  lease_seconds?: number | null;
}

export interface ClaimRequest {
  queues?: string[];
  tasks?: string[] | null;
  lease_seconds?: number | null;
  limit?: number;
  wait_seconds?: number;
}

export interface ClaimResponse {
  jobs: ClaimedJob[];
}

export interface ClaimedJob {
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  payload_base64?: string | null;
  payload_error?: string | null;
  id: string;
  lease: string;
  queue: string;
  task: string;
  attempt: number;
  run_number: number;
  failures: number;
  priority: number;
  lease_expires_at: string;
  heartbeat_seconds: number;
  timeout_seconds: number | null;
  deadline_at: string | null;
  metadata: Record<string, unknown>;
  tags: string[];
  correlation_id: string | null;
}

export type CommandKind = "drain" | "halt" | "pause" | "resume" | "stacks" | "stop";

export interface CommandList {
  commands: CommandView[];
}

export interface CommandRequest {
  kind: "drain" | "halt" | "pause" | "resume" | "stacks" | "stop";
  workers?: string[] | null;
  queue?: string | null;
}

export interface CommandView {
  id: string;
  worker: string;
  kind: CommandKind;
  sent_at: string;
  expires_at: string;
  delivered_at: string | null;
  response: string | null;
}

export interface CountsView {
  scheduled: number;
  blocked: number;
  pending: number;
  running: number;
  retrying: number;
  completed: number;
  dead: number;
  cancelled: number;
  live: number;
  total: number;
}

export interface CreateQueueRequest {
  name: string;
  settings?: QueueSettingsRequest;
}

export interface DeadLetterRequest {
  where?: JobFilter;
  dry_run?: boolean;
  group?: string | null;
}

export interface DependencyRequest {
  id?: string | null;
  index?: number | null;
  on_failure?: OnFailure;
}

export interface DiagnosisView {
  what: string;
  todo: string;
}

export interface DropResponse {
  name: string;
  live_jobs: number;
}

export interface DurationStatsView {
  count: number;
  average_ms: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
  p99_ms: number | null;
  min_ms: number | null;
  max_ms: number | null;
}

export interface EdgeView {
  id: string;
  edge: string;
  on_failure: string;
}

export interface EnqueueBatchResponse {
  accepted: EnqueueResponse[];
  rejected: RejectedJob[];
}

export interface EnqueueManyRequest {
  jobs: EnqueueRequest[];
  atomic?: boolean;
}

export interface EnqueueRequest {
  task: string;
  queue?: string;
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  id?: string | null;
  priority?: number | null;
  delay_seconds?: number;
  run_at?: string | null;
  deadline_at?: string | null;
  expires_at?: string | null;
  timeout_seconds?: number | null;
  lease_seconds?: number | null;
  max_retries?: number | null;
  retry_policy?: "base_1m" | "base_5s" | "cap_5m" | "default" | "jitter_both_ways";
  unique_key?: string | null;
  unique_until?: UniqueUntil;
  idempotency_key?: string | null;
  metadata?: Record<string, unknown>;
  tags?: string[];
  correlation_id?: string | null;
  parent_id?: string | null;
  limit_keys?: Record<string, string>;
  depends_on?: DependencyRequest[];
  allow_missing?: boolean;
  sequence?: string | null;
  client?: string | null;
  cost?: number;
}

export interface EnqueueResponse {
  id: string;
  queue: string;
  state: JobState | null;
  is_duplicate: boolean;
  index?: number;
  position?: number | null;
  position_is_exact?: boolean | null;
  starts_in_seconds?: number | null;
}

export type EventKind = "alert_changed" | "api_key_changed" | "cancel" | "comment" | "deleted" | "dropped" | "events_omitted" | "expired" | "follow_up_skipped" | "force_cancelled" | "gradual_revive" | "limit_changed" | "parent_failed" | "parked" | "queue_changed" | "refused" | "replayed" | "revived" | "schedule_changed" | "swept" | "updated" | "worker_command";

export interface EventView {
  kind: string;
  at: string;
  attempt: number | null;
  actor: string | null;
  detail: string;
}

export interface EventsMissed {
  after: number;
}

export interface ExtendRequest {
  lease: string;
  additional_seconds: number;
}

export interface FailureGroupList {
  groups: FailureGroupView[];
  jobs: number;
  is_complete: boolean;
  others: number;
}

export interface FailureGroupView {
  id: string;
  message: string;
  frames: string[];
  jobs: number;
  tasks: Record<string, number>;
  first_at: string;
  last_at: string;
  example_id: string;
  example_reason: string;
}

export interface FailureGroupsRequest {
  where?: JobFilter;
  newest?: number;
}

export interface FilterRequest {
  where?: JobFilter;
  dry_run?: boolean;
}

export interface GradualReviveList {
  gradual_revives: GradualReviveView[];
}

export interface GradualReviveRequest {
  where?: JobFilter;
  group?: string | null;
  initial_batch?: number;
  growth_factor?: number;
  max_batch?: number;
  every_seconds?: number;
  max_failure_percent?: number;
}

export type GradualReviveState = "completed" | "paused" | "running" | "stopped";

export interface GradualReviveView {
  name: string;
  state: GradualReviveState;
  reason: string;
  group: string | null;
  queues: string[];
  initial_batch: number;
  growth_factor: number;
  max_batch: number;
  every_seconds: number;
  max_failure_percent: number;
  started_at: string;
  started_by: string;
  next_at: string;
  ended_at: string | null;
  batches: number;
  scanned: number;
  revived: number;
  waiting: number;
  completed: number;
  failed_again: number;
  refused: number;
  removed: number;
}

export interface GrantView {
  role: Role;
  queues: string;
}

export interface GraphEdgeView {
  parent: string;
  child: string;
  edge: string;
  on_failure: string;
}

export interface GraphView {
  jobs: JobListItem[];
  edges: GraphEdgeView[];
  is_complete: boolean;
}

export interface HeartbeatRequest {
  lease: string;
  extend_seconds?: number | null;
  done?: number | null;
  total?: number | null;
  message?: string;
}

export interface HeartbeatResponse {
  lease_expires_at: string;
  heartbeat_seconds: number;
  cancel?: string | null;
}

export type HeartbeatStatus = "alive" | "dead" | "stale";

export interface InspectResponse {
  job: JobView;
  diagnosis: DiagnosisView[];
}

export interface JobFilter {
  queues?: string[];
  states?: JobState[];
  tasks?: string[];
  priority_from?: number | null;
  priority_to?: number | null;
  created_from?: string | null;
  created_before?: string | null;
  finished_before?: string | null;
  unique_key?: string | null;
  idempotency_key?: string | null;
  correlation_id?: string | null;
  parent_id?: string | null;
  tags?: string[];
  metadata?: Record<string, unknown>;
  text?: string | null;
}

export interface JobList {
  jobs: JobListItem[];
  after: string | null;
  has_more: boolean;
  scanned_back_to?: string | null;
  total?: number | null;
  total_is_exact?: boolean | null;
}

export interface JobListItem {
  id: string;
  queue: string;
  task: string;
  state: JobState;
  priority: number;
  attempt: number;
  failures: number;
  created_at: string;
  run_at: string;
  started_at: string | null;
  finished_at: string | null;
  duration_seconds: number | null;
  worker: string | null;
  reason: string | null;
  tags: string[];
}

export type JobState = "blocked" | "cancelled" | "completed" | "dead" | "pending" | "retrying" | "running" | "scheduled";

export interface JobView {
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  payload_base64?: string | null;
  payload_error?: string | null;
  id: string;
  queue: string;
  task: string;
  state: JobState;
  status: Status;
  is_final: boolean;
  priority: number;
  attempt: number;
  run_number: number;
  failures: number;
  crashes: number;
  max_retries: number;
  created_at: string;
  updated_at: string;
  run_at: string;
  started_at: string | null;
  finished_at: string | null;
  deadline_at: string | null;
  expires_at: string | null;
  lease_expires_at: string | null;
  worker: string | null;
  timeout_seconds: number | null;
  unique_key: string | null;
  idempotency_key: string | null;
  metadata: Record<string, unknown>;
  tags: string[];
  correlation_id: string | null;
  parent_id: string | null;
  limit_keys: Record<string, string>;
  sequence: string | null;
  cost: number;
  cancel_reason: string | null;
  reason: string | null;
  attempts: AttemptView[];
  events: EventView[];
  depends_on: EdgeView[];
  dependants: EdgeView[];
  progress: ProgressView | null;
}

export interface KeyList {
  keys: KeyView[];
}

export interface KeyRequest {
  name: string;
  grants: string[];
  lasts_seconds?: number | null;
  rate?: number | null;
  burst?: number | null;
  max_waits?: number | null;
  max_streams?: number | null;
  bytes_rate?: number | null;
  max_connections?: number | null;
}

export type KeyState = "active" | "expired" | "revoked";

export interface KeyView {
  name: string;
  state: KeyState;
  grants: string[];
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  used_at: string | null;
  old_until: string | null;
  rate: number | null;
  burst: number | null;
  max_waits?: number | null;
  max_streams?: number | null;
  bytes_rate?: number | null;
  max_connections?: number | null;
}

export interface KeyWithToken {
  name: string;
  state: KeyState;
  grants: string[];
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  used_at: string | null;
  old_until: string | null;
  rate: number | null;
  burst: number | null;
  max_waits?: number | null;
  max_streams?: number | null;
  bytes_rate?: number | null;
  max_connections?: number | null;
  token: string;
}

export interface LimitList {
  limits: LimitUsageView[];
}

export interface LimitRequest {
  scope: string;
  concurrency?: number | null;
  rate?: number | null;
  per_seconds?: number;
  burst?: number | null;
}

export interface LimitUsageView {
  scope: string;
  concurrency: number | null;
  rate: number | null;
  per_seconds: number;
  burst: number | null;
  state: "at_limit" | "open" | "out_of_tokens";
  running: number;
  tokens: number | null;
  waiting: number;
  waiting_workers: string[];
}

export interface LimitView {
  scope: string;
  concurrency: number | null;
  rate: number | null;
  per_seconds: number;
  burst: number | null;
}

export interface LivenessResponse {
  status?: "ok";
}

export interface LoginOptions {
  label?: string | null;
  path?: string | null;
}

export interface NackRequest {
  lease: string;
  error?: string;
  error_type?: string;
  traceback?: string;
  requeue?: boolean;
  retry_after_seconds?: number | null;
}

export interface NewRuleRequest {
  name: string;
  condition: string;
  severity?: Severity;
  window_seconds?: number;
  hold_for_seconds?: number;
  cooldown_seconds?: number;
  enabled?: boolean;
  queue?: string | null;
  task?: string | null;
  per?: AlertScope | null;
  id?: string | null;
}

export type OnFailure = "cancel" | "fail" | "hold" | "ignore";

export type OutcomeKind = "cancelled" | "completed" | "discarded" | "failed" | "interrupted" | "lost" | "parked" | "snoozed";

export interface OutcomeRequest {
  id: string;
  lease: string;
  outcome?: "cancelled" | "completed" | "discarded" | "failed" | "released" | "snoozed";
  result?: unknown;
  error?: string;
  error_type?: string;
  traceback?: string;
  delay_seconds?: number | null;
  cost?: number | null;
}

export type Overlap = "allow" | "queue" | "skip";

export interface PeekResponse {
  jobs: JobListItem[];
}

export interface PreviewResponse {
  when: string;
  runs: string[];
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail?: string;
  field?: string | null;
  holder?: string | null;
  retry_after_seconds?: number | null;
}

export interface ProgressView {
  done: number;
  total: number | null;
  message: string;
  at: string;
}

export interface QueueChanges {
  queues: QueueView[];
  removed: string[];
  is_all: boolean;
}

export interface QueueContentsResponse {
  queue: string;
  pending: QueuedJobView[];
  running: QueuedJobView[] | null;
  retrying: QueuedJobView[] | null;
}

export interface QueueList {
  queues: QueueView[];
}

export interface QueueMetrics {
  queue: string;
  window_seconds: number;
  counts: CountsView;
  claimed: number;
  completed: number;
  failed: number;
  lost: number;
  retried: number;
  dead: number;
  cancelled: number;
  snoozed: number;
  error_rate: number | null;
  errors: Record<string, number>;
  wait: DurationStatsView;
  run: DurationStatsView;
  enqueued_per_second: number | null;
  throughput_per_second: number;
  next_pending_age_seconds: number | null;
  consumers_active: number;
  pending_by_priority: Record<string, number>;
  oldest_pending_age_seconds: number | null;
  rate_limited_requests: number;
  tasks: TaskMetrics[];
}

export interface QueueMetricsList {
  queues: QueueMetrics[];
}

export type QueueMode = "aging" | "fifo" | "strict";

export interface QueueSettingsRequest {
  mode?: QueueMode;
  weight?: number;
  lease_seconds?: number;
  max_length?: number | null;
  default_priority?: number;
  min_priority?: number;
  max_priority?: number;
  aging_seconds?: number;
  max_aging_bonus?: number | null;
  retry_penalty?: number;
  deadline_weight?: number;
  deadline_horizon_seconds?: number;
  keep_finished_seconds?: number;
  keep_dead_seconds?: number;
  archive?: boolean;
  keep_archive_seconds?: number;
  enqueue_rate?: number | null;
  enqueue_burst?: number | null;
  client_rate?: number | null;
  client_burst?: number | null;
  fairness_weights?: Record<string, number>;
  promote_per_second?: number | null;
}

export type QueueState = "active" | "draining" | "dropped" | "paused";

export interface QueueView {
  name: string;
  state: QueueState;
  settings: Record<string, unknown>;
  counts: CountsView;
  drain_seconds: number | null;
  is_reordering: boolean;
  created_at: string;
  updated_at: string;
}

export interface QueuedJobView {
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  payload_base64?: string | null;
  payload_error?: string | null;
  id: string;
  task: string;
  state: JobState;
  priority: number;
  attempt: number;
  failures: number;
  run_at: string;
  worker: string | null;
  lease_expires_at: string | null;
}

export interface RejectedJob {
  index: number;
  problem: Problem;
}

export interface ReplayRequest {
  args?: unknown[] | null;
  kwargs?: Record<string, unknown> | null;
  queue?: string | null;
  priority?: number | null;
  delay_seconds?: number;
}

export interface ResultResponse {
  id: string;
  result: unknown;
}

export interface ReviveRequest {
  queue?: string | null;
  delay_seconds?: number;
  reset?: boolean;
  dependants?: boolean;
}

export type Role = "admin" | "consume" | "operate" | "produce" | "view";

export interface RotateRequest {
  grace_seconds?: number;
}

export interface RuleRequest {
  name: string;
  condition: string;
  severity?: Severity;
  window_seconds?: number;
  hold_for_seconds?: number;
  cooldown_seconds?: number;
  enabled?: boolean;
  queue?: string | null;
  task?: string | null;
  per?: AlertScope | null;
}

export interface ScheduleList {
  schedules: ScheduleView[];
}

export interface ScheduleRequest {
  task: string;
  queue?: string;
  args?: unknown[] | null;
  kwargs?: Record<string, unknown> | null;
  priority?: number | null;
  metadata?: Record<string, unknown>;
  cron?: string | null;
  every_seconds?: number | null;
  at?: string | null;
  timezone?: string;
  start_at?: string | null;
  end_at?: string | null;
  jitter_seconds?: number;
  catch_up?: CatchUp;
  catch_up_limit?: number;
  catch_up_seconds?: number;
  overlap?: Overlap;
  max_runs?: number | null;
}

export interface ScheduleRunList {
  runs: ScheduleRunView[];
}

export type ScheduleRunStatus = "enqueued" | "error" | "skipped";

export interface ScheduleRunView {
  planned_at: string;
  status: ScheduleRunStatus;
  job_id: string | null;
  reason: string;
  runs: number;
}

export interface ScheduleView {
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  payload_base64?: string | null;
  payload_error?: string | null;
  name: string;
  when: string;
  cron: string | null;
  every_seconds: number | null;
  at: string | null;
  task: string;
  queue: string;
  priority: number | null;
  metadata: Record<string, unknown>;
  timezone: string;
  start_at: string | null;
  end_at: string | null;
  jitter_seconds: number;
  is_paused: boolean;
  is_declared: boolean;
  next_run_at: string | null;
  last_run_at: string | null;
  last_job_id: string | null;
  overlap: Overlap;
  catch_up: CatchUp;
  catch_up_limit: number;
  catch_up_seconds: number;
  max_runs: number | null;
  enqueued_runs: number;
  skipped_runs: number;
  failed_runs: number;
  created_at: string;
  updated_at: string;
}

export interface SearchRequest {
  where?: JobFilter;
  limit?: number;
  after?: string | null;
  with_total?: boolean;
}

export interface SeriesResponse {
  start: string;
  end: string;
  resolution_seconds: number;
  times: string[];
  series: SeriesView[];
}

export interface SeriesView {
  name: string;
  unit: string;
  values: (number | null)[];
}

export interface SessionEnded {
  done?: boolean;
}

export interface SessionView {
  name: string;
  is_open: boolean;
  has_key: boolean;
  grants: GrantView[];
  operations: string[];
  engine: string;
  version: string;
}

export interface SettleRequest {
  outcomes: OutcomeRequest[];
}

export interface SettleResponse {
  settled: SettleResult[];
}

export interface SettleResult {
  id: string;
  is_kept: boolean;
  problem?: Problem | null;
}

export type Severity = "critical" | "info" | "warning";

export interface SignalRequest {
  signal: "pause" | "resume" | "shutdown" | "status";
}

export interface SignalResponse {
  worker: WorkerView;
  command: CommandView | null;
}

export type Status = "cancelled" | "completed" | "failed" | "pending" | "running";

export interface StoreUsageView {
  memory_bytes: number | null;
  memory_limit_bytes: number | null;
  memory_used_ratio: number | null;
  connections: number | null;
  connection_limit: number | null;
  connections_used_ratio: number | null;
  evicted_keys: number | null;
}

export interface SweepResponse {
  has_begun: boolean;
}

export interface SystemMetrics {
  at: string;
  queue_depths: Record<string, number>;
  workers: number;
  workers_memory_bytes: number;
  workers_cpu_cores: number;
  schedules: number;
  server_memory_bytes: number;
  server_cpu_seconds: number;
  store: StoreUsageView;
}

export interface TaskMetrics {
  task: string;
  claimed: number;
  completed: number;
  failed: number;
  lost: number;
  retried: number;
  dead: number;
  cancelled: number;
  snoozed: number;
  error_rate: number | null;
  errors: Record<string, number>;
  wait: DurationStatsView;
  run: DurationStatsView;
}

export interface TimelineEntryView {
  at: string;
  what: string;
  detail: string;
}

export type TlsMode = "always" | "never" | "starttls";

export interface TraceResponse {
  job: JobView;
  result: unknown;
  result_error: string | null;
  timeline: TimelineEntryView[];
}

export interface TriggerRequest {
  kind: string;
  message: string;
  severity?: Severity;
  details?: Record<string, unknown>;
}

export type UniqueUntil = "final" | "started";

export interface UpdateJobRequest {
  priority?: number | null;
  delay_seconds?: number | null;
  run_at?: string | null;
  metadata?: Record<string, unknown> | null;
  queue?: string | null;
}

export interface WorkerChanges {
  workers: WorkerView[];
}

export interface WorkerList {
  workers: WorkerView[];
}

export type WorkerState = "idle" | "paused" | "starting" | "stopped" | "stopping" | "unresponsive" | "working";

export interface WorkerStateResponse {
  worker: WorkerView;
  stacks: string | null;
}

export interface WorkerView {
  id: string;
  host: string;
  pid: number;
  state: WorkerState;
  heartbeat_status: HeartbeatStatus;
  queues: string[];
  paused: string[];
  running: string[];
  slots: number;
  stuck: number;
  abandoned: number;
  completed: number;
  failed: number;
  memory: number | null;
  cpu: number | null;
  started_at: string;
  heartbeat_at: string;
  recent: string[];
}
