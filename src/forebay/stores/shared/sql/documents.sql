-- name: document_remove: delete a document; a row means that there was one.
delete from forebay.documents
where kind = :kind
  and name = :name
returning 1;
