-- outbox_remove_all: the oldest lines of the list are done.
delete from forebay_dependency_outbox where id <= :id;
