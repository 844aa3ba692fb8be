"""Dictionary of the keys of the Redis engine.

Every key begins with the namespace in braces (`{forebay}:` by default). So all keys lie in one hash slot of a
cluster, and one ACL pattern (`~{forebay}:*`) covers them.

Jobs
  headers                  hash    id -> header: the fields that change, and those that scripts need
  body:<seq>               string  id, options and payload; written once
  seq                      string  last seq of a job
  blocks, block_jobs       sorted set, hash: blocks of a thousand seqs with jobs, and the number of jobs in
                           each; search scans them
  counts                   hash    "queue state" -> number of jobs
  removed_counts           hash    queue -> number of jobs that were pruned, deleted or moved to another queue

Indexes of live jobs; a member is the seq in 13 digits, a colon and the id
  ready:<queue>            sorted set by rank: pending jobs
  ready_capped:<queue>     sorted set by rank: pending jobs whose age bonus is used up
  lane:<queue>:<lane>, lane_capped:<queue>:<lane>   the same for the jobs of a lane
  lanes:<queue>            set     lanes with jobs; not those of limits and fairness keys
  delayed:<queue>          sorted set by time: scheduled and retrying jobs
  expiry_times, rescore_times   sorted sets by time: waiting jobs that expire, or that need a new rank
  blocked:<queue>          sorted set by time: jobs with open dependencies
  capped_scan              hash    queue -> seq up to which jobs were checked for a used-up age bonus
  leases:<worker>          sorted set by lease end: running jobs
  lease_holders            set     workers that may have leases
  cancel_requests          hash    id -> reason: running jobs that were asked to stop

Indexes of final jobs
  completed:<queue>, cancelled:<queue>, dead:<queue>   sorted sets of ids by the time the job ended
  archived:<queue>         sorted set by the time the job ended: entry ids of pruned jobs
  archive, archive_id      hash of the archive entries; counter of their ids

Keys given by callers
  unique:<queue>           hash    unique key -> id
  idempotency:<queue>, idempotency_until:<queue>   hash key -> id and expiry; sorted set of keys by expiry

Dependencies and sequences
  parents:<id>             hash    position -> failure policy and id of a parent
  single_parents           hash    id -> the same, for jobs with one parent
  children:<id>            sorted set by edge state: edges to the children of a job, each a child and a
                           position; edges of a completed job keep their score
  unmet                    hash    id -> number of edges that block the job, plus one for its predecessors in
                           a sequence
  dependency_count         string  number of edges; no key while there are none
  sequence:<name>          sorted set by position: live jobs of a sequence; the first one may run
  job_sequence             hash    id -> sequence of a live job
  sequence_position        string  last position given to a job of a sequence
  dependency_outbox        list    job ends that are not propagated yet; jobs that completed together share an
                           entry

History
  failed_attempts:<id>     list    failed attempts, oldest first
  unstarted                hash    id -> number of attempts that were claimed and never began. Not in the
                           header: few jobs have any
  progress:<id>, logs:<id>, steps:<id>   latest progress, last log lines, finished steps
  events, event_id         hash of events; counter of their ids and of those of audit entries
  event_ids, event_times   sorted sets of ids: events that are no operator actions by id, all events by time
  job_events:<id>          list    event ids of a job
  audit, audit_order       hash of the audit entries; sorted set of their ids
  audit_chain              list    hash chain of the audit log: position, previous hash, hash, entry id

Everything else
  queues                   hash    name -> state and settings
  workers, commands        hashes  worker records; commands for workers
  worker_commands:<worker> list    commands that the worker has not taken
  command_expiry           sorted set of commands by expiry
  schedules, schedule_checks   hash name -> schedule; sorted set of names by the time of the next check
  schedule_names           sorted set of all names in order
  schedule_runs:<name>     list    last runs of a schedule, newest last
  documents:<kind>         hash    name -> document
  document_names:<kind>    sorted set of all names in order
  metrics:<resolution>:<start>   hash    queue and worker -> counters of one period of so many milliseconds
  metric_starts:<resolution>     sorted set by time: starts of the periods that have rows
  limits                   hash    scope -> limit, with the token bucket of its rate
  rate_buckets, rate_bucket_expiry   hash scope -> token bucket of one value of a key; sorted set of scopes by
                           the time from which the bucket may be full and can be dropped
  enqueue_bucket:<scope>   string  token bucket of an enqueue rate (enqueue:<queue>, client:<queue>:<client>);
                           expires when it must be full
  has_token_costs          string  exists once a job was enqueued that costs more or less than one token
  limit_slots              hash    scope -> running jobs under the limit of a task or of one value of a key;
                           id between two zero bytes -> the scopes in which the running job holds a slot
  limit_lanes:<queue>      sorted set by time: scopes with parked jobs, and when to check them again
  limit_lane_queues        set     queues that have such scopes
  fairness_keys:<queue>    sorted set by virtual time: fairness keys with jobs in their lanes
  limit_lane_keys:<queue>\\t<scope>   sorted set by virtual time: fairness keys with jobs parked under a limit
  limit_lane_counts:<queue>   hash    fairness key -> number of scopes in which it has parked jobs
  saved_virtual_times:<queue> hash    fairness key with parked jobs -> its last virtual time in the queue
  has_fairness_keys        string  exists once a job had a fairness key
  maintenance              hash    name of a maintenance task -> when it is due next
  schema                   hash    number of this layout, the oldest layout that programs must know to work
                           with it, and the name of the first
  wakeups                  channel hints that work may have come
"""

from __future__ import annotations

import re
from typing import Final

from forebay.errors import ConfigError

DEFAULT_NAMESPACE: Final = "forebay"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")


def tag(namespace: str) -> str:
    """Return the hash tag that all keys of a namespace begin with."""
    if not _NAMESPACE.match(namespace):
        raise ConfigError(
            f"{namespace!r:.60} cannot name a namespace: use letters, digits, _, - or ., at most 50"
        )
    return "{" + namespace + "}"
