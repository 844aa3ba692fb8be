-- oldest: 5
-- Documents that are kept for others, such as API keys, and what an event has changed. A program that knows only the
-- schemas before works on: it sees no documents, and its events do not say what they have changed.

create table forebay.documents (
  kind text collate "C" not null,
  name text collate "C" not null,
  body text not null,
  revision bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (kind, name)
);

-- As JSON: by name what was before and what is after.
alter table forebay.events add column changes text;
