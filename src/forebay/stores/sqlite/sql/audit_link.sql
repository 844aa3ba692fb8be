-- audit_link: let a line join the chain.
update forebay_audit
set position = :position, previous = :previous, hash = :hash
where id = :id;
