-- document_remove: forget a document; an answer means that there was one.
delete from forebay_documents
where kind = :kind
  and name = :name
returning 1;
