-- firing_add: what became of a run, or of several.
insert into forebay.firings (name, at, status, recorded_at, job_id, reason, until_at, count)
values (
  %(name)s, %(at)s, %(status)s, %(recorded_at)s, %(job_id)s, %(reason)s, %(until_at)s, %(count)s
);
