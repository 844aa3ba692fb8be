-- command_answer: what came of a command.
update forebay.worker_commands set response = %(response)s where id = %(id)s;
