-- schema_exists: whether this file has ever had a schema of Forebay.
select 1 from sqlite_master where type = 'table' and name = 'forebay_schema';
