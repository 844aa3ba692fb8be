-- queue_save: write a queue as it shall be from now on.
insert into forebay_queues (name, state, settings, rank_version, reordered_to, created_at, updated_at)
values (:name, :state, :settings, :scoring_version, :rescored_to_seq, :created_at, :updated_at)
on conflict (name) do update
set state = excluded.state,
    settings = excluded.settings,
    rank_version = excluded.rank_version,
    reordered_to = excluded.reordered_to,
    updated_at = excluded.updated_at;
