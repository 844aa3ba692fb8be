-- outbox_remove: a line of the list is done.
delete from forebay_dependency_outbox where id = :id;
