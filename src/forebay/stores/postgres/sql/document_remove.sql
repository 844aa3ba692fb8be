-- document_remove: forget a document; an answer means that there was one.
delete from forebay.documents
where kind = %(kind)s
  and name = %(name)s
returning 1;
