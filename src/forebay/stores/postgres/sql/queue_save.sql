-- queue_save: store a queue whose row is locked.
update forebay.queues
set state = %(state)s,
    settings = %(settings)s,
    scoring_version = %(scoring_version)s,
    rescored_to_seq = %(rescored_to_seq)s,
    updated_at = %(updated_at)s
where name = %(name)s;
