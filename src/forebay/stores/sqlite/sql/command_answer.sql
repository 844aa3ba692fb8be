-- command_answer: what came of a command.
update forebay_commands set answer = :answer where id = :id;
