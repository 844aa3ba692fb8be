-- document_remove: delete a document; a row means that there was one.
delete from forebay.documents
where kind = %(kind)s
  and name = %(name)s
returning 1;
