-- audit_link: append an entry to the chain.
update forebay.audit
set position = %(position)s, previous = %(previous)s, hash = %(hash)s
where id = %(id)s;
