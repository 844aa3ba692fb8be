-- command_answer: what came of a command.
update forebay_worker_commands set response = :response where id = :id;
