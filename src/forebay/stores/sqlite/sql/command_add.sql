-- command_add: add a command for one worker.
insert into forebay_worker_commands (id, worker, kind, queue, actor, sent_at, expires_at)
values (:id, :worker, :kind, :queue, :actor, :sent_at, :expires_at);
