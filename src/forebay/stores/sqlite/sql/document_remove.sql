-- document_remove: remove a document; a returned row means that there was one.
delete from forebay_documents
where kind = :kind
  and name = :name
returning 1;
