-- command_answer: store the response to a command.
update forebay.worker_commands set response = %(response)s where id = %(id)s;
