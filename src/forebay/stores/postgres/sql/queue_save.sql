-- queue_save: write a queue as it shall be from now on; its row is locked.
update forebay.queues
set state = %(state)s,
    settings = %(settings)s,
    rank_version = %(scoring_version)s,
    reordered_to = %(rescored_to_seq)s,
    updated_at = %(updated_at)s
where name = %(name)s;
