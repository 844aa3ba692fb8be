-- command_add: store a command to one worker.
insert into forebay.worker_commands (id, worker, kind, queue, actor, sent_at, expires_at)
values (%(id)s, %(worker)s, %(kind)s, %(queue)s, %(actor)s, %(sent_at)s, %(expires_at)s);
