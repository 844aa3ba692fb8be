-- command_answer: what came of a command.
update forebay.commands set answer = %(answer)s where id = %(id)s;
