"""Every key of the Redis engine. All begin with the namespace in braces, `{forebay}:` unless the address says
otherwise, so that they lie in one slot of a cluster and one ACL pattern (`~{forebay}:*`) covers them.

Jobs
  heads                    hash    id -> head: what changes about a job, and all that scripts must know
  body:<seq>               string  id, options and payload: what is written once
  seq                      string  the last number given to a job
  blocks, block_jobs       sorted set, hash: which thousands of seqs hold jobs, and how many each; searching
                           walks through them
  counts                   hash    "queue state" -> how many jobs
  removed                  hash    queue -> how many jobs are gone: pruned, deleted, revived elsewhere

Where live jobs stand; a member is the job's seq in 13 digits, a colon and its id
  ready:<queue>            sorted set by rank: pending jobs
  capped:<queue>           sorted set by rank: pending jobs whose age earns nothing more
  gated:<queue>:<gate>, gated_capped:<queue>:<gate>   the same, behind a gate
  gates:<queue>            set     gates with jobs behind them
  due:<queue>              sorted set by time: scheduled and retrying jobs
  expiring, rescoring      sorted sets by time: waiting jobs that expire, or that must get a new place
  blocked:<queue>          sorted set by time: jobs that depend on others
  capped_to                hash    queue -> up to which seq jobs were looked at whose age earns nothing more
  leases:<worker>          sorted set by the end of the lease: running jobs
  holders                  set     workers that may have leases
  wishes                   hash    id -> reason: running jobs that shall stop

Where final jobs stand
  completed:<queue>, cancelled:<queue>, dead:<queue>   sorted sets of ids by the time they ended
  archived:<queue>         sorted set by the time the job ended: numbers of lines about pruned jobs
  archive, archive_number  hash and counter of these lines

Keys that callers give
  unique:<queue>           hash    key -> id
  once:<queue>, once_until:<queue>   hash key -> id and end; sorted set of keys by their end

Jobs that depend on others
  edges:<id>               hash    number -> what the failure of a parent means, and its id
  single_edges             hash    id -> the same for jobs that depend on one
  behind:<id>              sorted set by state: the edges that lead from a job, each a child and its number;
                           those of a job that has completed stay as they were
  unmet                    hash    id -> how many edges block a job; those before it in its sequence are one
  edge_count               string  how many edges there are; no key while there is none
  sequence:<name>          sorted set by turn: live jobs of a sequence, of which the first may run
  sequence_of              hash    id -> the sequence of a live job
  turn                     string  the last turn given to a job of a sequence
  aftermaths               list    jobs that have ended, and what that means for others is not done yet; those
                           that have completed together are one line

What is remembered
  attempts:<id>            list    attempts that ended badly, oldest first
  unstarted                hash    id -> how many attempts were claimed and never began. Not in the head: few
                           jobs have any
  notes:<id>, lines:<id>, steps:<id>   the latest progress, the last log lines, the steps done
  events, event_number     hash of events; counter of these and of lines of the audit log
  event_order, event_times sorted sets of their numbers: those that are no actions by number, and all by time
  events_of:<id>           list    numbers of a job's events
  audit, audit_order       hash of the lines of the audit log; sorted set of their numbers
  audit_chain              list    its chain of hashes: position, hash before, hash, number

The rest
  queues                   hash    name -> state and settings
  workers, commands        hashes  what workers say; what they are asked
  commands_of:<worker>     list    commands that nobody has taken
  command_times            sorted set of commands by the time they expire
  schedules, schedules_due hash name -> schedule; sorted set of names by the time they are worth a look
  schedule_names           sorted set: all of them, in the order of their names
  firings:<name>           list    what became of the last runs of a schedule, newest last
  documents:<kind>         hash    name -> document
  document_names:<kind>    sorted set: all of them, in the order of their names
  metrics:<tier>:<start>   hash    queue and worker -> what happened in so many milliseconds from then on
  metric_starts:<tier>     sorted set by time: the starts that have rows
  limits                   hash    scope -> limit, with what is left of its rate
  buckets, bucket_times    hash scope -> what is left of the rate of one value of a key; sorted set of scopes
                           by the time from which it may be full and need not be known
  bucket:<scope>           string  what is left of a rate at which a queue takes jobs (enqueue:<queue>,
                           client:<queue>:<client>); expires when it must be full
  dear                     string  there if a job was ever enqueued that does not cost one token
  places                   hash    scope -> which jobs run under the limit of a task or of one value of a key;
                           id between two zeros -> the scopes in which a running job has a place
  closed:<queue>           sorted set by time: scopes with jobs behind their gates, and when to look there
  closed_queues            set     queues that have such scopes
  shares:<queue>           sorted set by turn: shares with jobs behind their gates
  lanes:<queue>\\t<scope>   sorted set by turn: shares with jobs behind the limit of a scope
  lane_counts:<queue>      hash    share -> how many such lanes it has
  lane_turns:<queue>       hash    share with lanes -> its last turn in the queue
  has_shares               string  there once a job had a share
  duties                   hash    name -> when it is next due
  schema                   hash    number of this layout, the oldest one that programs must know to work with
                           it, and the name of the first
  news                     channel hints that work may have come
"""

from __future__ import annotations

import re
from typing import Final

from forebay.errors import ConfigError

DEFAULT_NAMESPACE: Final = "forebay"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")


def tag(namespace: str) -> str:
    """What all keys of a namespace begin with."""
    if not _NAMESPACE.match(namespace):
        raise ConfigError(
            f"{namespace!r:.60} cannot name a namespace: use letters, digits, _, - or ., at most 50"
        )
    return "{" + namespace + "}"
