-- outbox_remove: remove an outbox entry that is resolved.
delete from forebay_dependency_outbox where id = :id;
