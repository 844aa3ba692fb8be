-- audit_link: append a line to the chain.
update forebay_audit
set position = :position, previous = :previous, hash = :hash
where id = :id;
