-- queue_save: save a queue.
insert into forebay_queues (name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at)
values (:name, :state, :settings, :scoring_version, :rescored_to_seq, :created_at, :updated_at)
on conflict (name) do update
set state = excluded.state,
    settings = excluded.settings,
    scoring_version = excluded.scoring_version,
    rescored_to_seq = excluded.rescored_to_seq,
    updated_at = excluded.updated_at;
