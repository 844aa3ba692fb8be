-- command_answer: store the response to a command.
update forebay_worker_commands set response = :response where id = :id;
