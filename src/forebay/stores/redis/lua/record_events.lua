#!lua flags=allow-oom
-- record_events: add events to the history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: events (kind, time or 0 for now, job, queue, attempt, actor, detail)
-- Returns nothing.
for _, event in ipairs(request.events) do
  if event[2] == 0 then
    event[2] = now
  end
  record_event(event)
end
