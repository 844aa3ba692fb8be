-- outbox_remove_all: remove the oldest outbox entries, which are resolved.
delete from forebay_dependency_outbox where id <= :id;
