// Made by `make reference` from the service's own description; do not edit.

export interface Accepted {
  id: string;
  queue: string;
  state: JobState | null;
  is_duplicate: boolean;
  index?: number;
  position?: number | null;
  position_is_exact?: boolean | null;
  starts_in_seconds?: number | null;
}

export interface AckRequest {
  lease: string;
  result?: unknown;
  cost?: number | null;
}

export interface AdviceShape {
  what: string;
  todo: string;
}

export interface AlertList {
  alerts: AlertShape[];
}

export interface AlertShape {
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

export interface Alive {
  status?: "ok";
}

export interface AmendRequest {
  priority?: number | null;
  delay_seconds?: number | null;
  run_at?: string | null;
  metadata?: Record<string, unknown> | null;
  queue?: string | null;
}

export interface Answered {
  done: boolean;
}

export interface AttemptShape {
  attempt: number;
  ending: Ending;
  worker: string | null;
  started_at: string | null;
  ended_at: string;
  duration_seconds: number | null;
  error_type: string;
  error: string;
  traceback: string;
}

export interface AuditAnswer {
  lines: AuditLine[];
  after: number | null;
  has_more: boolean;
}

export interface AuditCheckRequest {
  after?: number;
  limit?: number;
}

export interface AuditChecked {
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

export interface AuditLine {
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

export interface AuditRequest {
  kinds?: EventKind[] | null;
  everything?: boolean;
  actor?: string | null;
  request?: string | null;
  queue?: string | null;
  job_id?: string | null;
  since?: string | null;
  until?: string | null;
  limit?: number;
  after?: number | null;
}

export interface BulkAnswer {
  matched: number;
  matched_is_exact: boolean;
  done: number;
  dry_run: boolean;
  busy: number;
}

export interface BulkRequest {
  action: "cancel" | "delete" | "revive";
  where?: JobFilter;
  everything?: boolean;
  dry_run?: boolean;
  reason?: string;
  queue?: string | null;
  delay_seconds?: number;
  reset?: boolean;
}

export interface CallShape {
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

export interface ChannelList {
  channels: ChannelShape[];
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
  tls?: Tls;
  username?: string;
  password?: string | null;
}

export interface ChannelShape {
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
  tls?: Tls | null;
  username?: string | null;
  password?: string | null;
}

export interface ClaimAnswer {
  jobs: ClaimedJob[];
}

export interface ClaimRequest {
  queues?: string[];
  tasks?: string[] | null;
  lease_seconds?: number | null;
  most?: number;
  wait_seconds?: number;
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
  commands: CommandShape[];
}

export interface CommandRequest {
  kind: "drain" | "halt" | "pause" | "resume" | "stacks" | "stop";
  workers?: string[] | null;
  queue?: string | null;
}

export interface CommandShape {
  id: string;
  worker: string;
  kind: CommandKind;
  sent_at: string;
  expires_at: string;
  taken_at: string | null;
  answer: string | null;
}

export interface ContentShape {
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

export interface ContentsAnswer {
  queue: string;
  pending: ContentShape[];
  running: ContentShape[] | null;
  retrying: ContentShape[] | null;
}

export interface CountsShape {
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
  settings?: SettingsRequest;
}

export interface DeadRequest {
  where?: JobFilter;
  dry_run?: boolean;
  group?: string | null;
}

export interface Dependency {
  id?: string | null;
  index?: number | null;
  on_failure?: OnFailure;
}

export interface DropAnswer {
  name: string;
  live_jobs: number;
}

export type Each = "queue" | "task";

export interface EdgeShape {
  id: string;
  edge: string;
  on_failure: string;
}

export interface Ended {
  done?: boolean;
}

export type Ending = "cancelled" | "completed" | "discarded" | "failed" | "held" | "interrupted" | "lost" | "snoozed";

export interface EndingRequest {
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

export interface EnqueueManyAnswer {
  accepted: Accepted[];
  rejected: Rejected[];
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
  retry?: "base_1m" | "base_5s" | "cap_5m" | "default" | "jitter_both_ways";
  unique_key?: string | null;
  unique_until?: UniqueUntil;
  idempotency_key?: string | null;
  metadata?: Record<string, unknown>;
  tags?: string[];
  correlation_id?: string | null;
  parent_id?: string | null;
  limit_keys?: Record<string, string>;
  depends_on?: Dependency[];
  allow_missing?: boolean;
  sequence?: string | null;
  client?: string | null;
  cost?: number;
}

export type EventKind = "alert" | "amended" | "cancel" | "command" | "deleted" | "dropped" | "expired" | "forced" | "held" | "key" | "limit" | "more" | "note" | "parent" | "queue" | "ramp" | "refused" | "replayed" | "revived" | "schedule" | "swept" | "unfollowed";

export interface EventShape {
  kind: string;
  at: string;
  attempt: number | null;
  actor: string | null;
  detail: string;
}

export interface ExtendRequest {
  lease: string;
  additional_seconds: number;
}

export interface FilterRequest {
  where?: JobFilter;
  dry_run?: boolean;
}

export interface FiringList {
  firings: FiringShape[];
}

export interface FiringShape {
  at: string;
  status: FiringStatus;
  job_id: string | null;
  reason: string;
  count: number;
}

export type FiringStatus = "enqueued" | "error" | "skipped";

export interface GrantShape {
  role: Role;
  queues: string;
}

export interface GraphShape {
  jobs: JobLine[];
  edges: TieShape[];
  is_whole: boolean;
}

export interface GroupList {
  groups: GroupShape[];
  jobs: number;
  is_whole: boolean;
  others: number;
}

export interface GroupShape {
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

export interface GroupsRequest {
  where?: JobFilter;
  newest?: number;
}

export interface Happening {
  lines: LineShape[];
}

export interface HeartbeatAnswer {
  lease_expires_at: string;
  heartbeat_seconds: number;
  cancel?: string | null;
}

export interface HeartbeatRequest {
  lease: string;
  extend_seconds?: number | null;
  done?: number | null;
  total?: number | null;
  message?: string;
}

export interface InspectAnswer {
  job: JobShape;
  advice: AdviceShape[];
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

export interface JobLine {
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

export interface JobList {
  jobs: JobLine[];
  after: string | null;
  has_more: boolean;
  stopped_at?: string | null;
  total?: number | null;
  total_is_exact?: boolean | null;
}

export interface JobShape {
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
  attempts: AttemptShape[];
  events: EventShape[];
  depends_on: EdgeShape[];
  dependants: EdgeShape[];
  progress: ProgressShape | null;
}

export type JobState = "blocked" | "cancelled" | "completed" | "dead" | "pending" | "retrying" | "running" | "scheduled";

export interface KeyList {
  keys: KeyShape[];
}

export interface KeyMade {
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
  token: string;
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
}

export interface KeyShape {
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
}

export type KeyState = "active" | "expired" | "revoked";

export interface LimitList {
  limits: LimitUse[];
}

export interface LimitRequest {
  scope: string;
  concurrency?: number | null;
  rate?: number | null;
  per_seconds?: number;
  burst?: number | null;
}

export interface LimitShape {
  scope: string;
  concurrency: number | null;
  rate: number | null;
  per_seconds: number;
  burst: number | null;
}

export interface LimitUse {
  scope: string;
  concurrency: number | null;
  rate: number | null;
  per_seconds: number;
  burst: number | null;
  state: "busy" | "open" | "spent";
  running: number;
  tokens: number | null;
  waiting: number;
  throttled: string[];
}

export interface LineShape {
  number: number;
  kind: string;
  at: string;
  job_id: string | null;
  queue: string | null;
  attempt: number | null;
  actor: string | null;
  detail: string;
}

export interface LoginOptions {
  label?: string | null;
  path?: string | null;
}

export interface Missed {
  after: number;
}

export interface MomentShape {
  at: string;
  what: string;
  detail: string;
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
  hold_seconds?: number;
  cooldown_seconds?: number;
  enabled?: boolean;
  queue?: string | null;
  task?: string | null;
  each?: Each | null;
  id?: string | null;
}

export type OnFailure = "cancel" | "fail" | "hold" | "ignore";

export type Overlap = "allow" | "queue" | "skip";

export interface PeekAnswer {
  jobs: JobLine[];
}

export interface PreviewAnswer {
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

export interface ProgressShape {
  done: number;
  total: number | null;
  message: string;
  at: string;
}

export type Pulse = "alive" | "dead" | "stale";

export interface QueueList {
  queues: QueueShape[];
}

export interface QueueMetrics {
  queue: string;
  window_seconds: number;
  counts: CountsShape;
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
  wait: SpreadShape;
  run: SpreadShape;
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

export interface QueueNews {
  queues: QueueShape[];
  gone: string[];
  is_all: boolean;
}

export interface QueueShape {
  name: string;
  state: QueueState;
  settings: Record<string, unknown>;
  counts: CountsShape;
  drain_seconds: number | null;
  is_reordering: boolean;
  created_at: string;
  updated_at: string;
}

export type QueueState = "active" | "draining" | "dropped" | "paused";

export interface RampList {
  ramps: RampShape[];
}

export interface RampRequest {
  where?: JobFilter;
  group?: string | null;
  first?: number;
  factor?: number;
  most?: number;
  every_seconds?: number;
  stop_percent?: number;
}

export interface RampShape {
  name: string;
  state: RampState;
  reason: string;
  group: string | null;
  queues: string[];
  first: number;
  factor: number;
  most: number;
  every_seconds: number;
  stop_percent: number;
  started_at: string;
  started_by: string;
  next_at: string;
  ended_at: string | null;
  batches: number;
  looked: number;
  revived: number;
  waiting: number;
  completed: number;
  dead: number;
  refused: number;
  gone: number;
}

export type RampState = "completed" | "paused" | "running" | "stopped";

export interface Rejected {
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

export interface ResultAnswer {
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

export interface RuleList {
  rules: RuleShape[];
  metrics: Record<string, string>;
}

export interface RuleRequest {
  name: string;
  condition: string;
  severity?: Severity;
  window_seconds?: number;
  hold_seconds?: number;
  cooldown_seconds?: number;
  enabled?: boolean;
  queue?: string | null;
  task?: string | null;
  each?: Each | null;
}

export interface RuleShape {
  id: string;
  name: string;
  condition: string;
  severity: Severity;
  window_seconds: number;
  hold_seconds: number;
  cooldown_seconds: number;
  enabled: boolean;
  queue: string | null;
  task: string | null;
  each: Each | null;
  is_usual: boolean;
}

export interface ScheduleList {
  schedules: ScheduleShape[];
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
  catch_up_most?: number;
  catch_up_seconds?: number;
  overlap?: Overlap;
  max_firings?: number | null;
}

export interface ScheduleShape {
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
  next_at: string | null;
  last_at: string | null;
  last_job_id: string | null;
  overlap: Overlap;
  catch_up: CatchUp;
  catch_up_most: number;
  catch_up_seconds: number;
  max_firings: number | null;
  fired: number;
  skipped: number;
  failed: number;
  created_at: string;
  updated_at: string;
}

export interface SearchRequest {
  where?: JobFilter;
  limit?: number;
  after?: string | null;
  with_total?: boolean;
}

export interface SeriesAnswer {
  start: string;
  end: string;
  resolution_seconds: number;
  times: string[];
  series: SeriesShape[];
}

export interface SeriesShape {
  name: string;
  unit: string;
  values: (number | null)[];
}

export interface SessionShape {
  name: string;
  is_open: boolean;
  has_key: boolean;
  grants: GrantShape[];
  operations: string[];
  engine: string;
  version: string;
}

export interface SettingsRequest {
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
  share_weights?: Record<string, number>;
  promote_per_second?: number | null;
}

export interface SettleAnswer {
  settled: Settled[];
}

export interface SettleRequest {
  endings: EndingRequest[];
}

export interface Settled {
  id: string;
  is_kept: boolean;
  problem?: Problem | null;
}

export type Severity = "critical" | "info" | "warning";

export interface SignalAnswer {
  worker: WorkerShape;
  command: CommandShape | null;
}

export interface SignalRequest {
  signal: "pause" | "resume" | "shutdown" | "status";
}

export interface SpreadShape {
  count: number;
  average_ms: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
  p99_ms: number | null;
  least_ms: number | null;
  most_ms: number | null;
}

export type Status = "cancelled" | "completed" | "failed" | "pending" | "running";

export interface StoreUse {
  memory_bytes: number | null;
  memory_limit_bytes: number | null;
  memory_share: number | null;
  connections: number | null;
  connection_limit: number | null;
  connections_share: number | null;
  evicted_keys: number | null;
}

export interface SweepAnswer {
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
  store: StoreUse;
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
  wait: SpreadShape;
  run: SpreadShape;
}

export interface TieShape {
  parent: string;
  child: string;
  edge: string;
  on_failure: string;
}

export type Tls = "always" | "never" | "starttls";

export interface TraceAnswer {
  job: JobShape;
  result: unknown;
  result_error: string | null;
  timeline: MomentShape[];
}

export interface TriggerRequest {
  kind: string;
  message: string;
  severity?: Severity;
  details?: Record<string, unknown>;
}

export type UniqueUntil = "final" | "started";

export interface Verdict {
  id: string;
  done: boolean;
  state: JobState | null;
  reason?: string;
}

export interface Wanted {
  queues?: string[];
  tasks?: string[] | null;
  lease_seconds?: number | null;
}

export interface WorkerList {
  workers: WorkerShape[];
}

export interface WorkerNews {
  workers: WorkerShape[];
}

export interface WorkerShape {
  id: string;
  host: string;
  pid: number;
  state: WorkerState;
  pulse: Pulse;
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
  beat_at: string;
  recent: string[];
}

export type WorkerState = "idle" | "paused" | "silent" | "starting" | "stopped" | "stopping" | "working";

export interface WorkerStateAnswer {
  worker: WorkerShape;
  stacks: string | null;
}
