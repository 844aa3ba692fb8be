#!lua flags=allow-oom
-- Cancel waiting jobs; store the wish on running ones, or take their lease away by force.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, reason, actor, force, dependants (whether all that depends on them is cancelled too)
-- Returns for each job {done, state, reason}.
local verdicts, forced = {}, {}
load(ask.ids)
-- Before the lines of their ends, by which some dependants would be released, or die.
if ask.dependants then
  for _, id in ipairs(ask.ids) do
    -- What has completed has met its edges, whatever these say.
    if not has_completed(id) then
      list_aftermath(id, 'cancel')
    end
  end
end
for i, id in ipairs(ask.ids) do
  local job = find(id)
  if not job then
    verdicts[i] = {0, false, ''}
  elseif FINAL[job.head[STATE]] then
    verdicts[i] = {0, job.head[STATE], 'it is already ' .. job.head[STATE]}
  else
    local head = job.head
    if head[STATE] ~= 'running' then
      local changes = changed({{'state', head[STATE], 'cancelled'}})
      put_final(job, 'cancelled', ask.reason, false)
      tell('cancel', job, ask.actor, false, ask.reason, changes)
    elseif ask.force then
      lift(job)
      -- Without a worker, so that the old holder's settlement is refused and not taken for a repeated one.
      head[WORKER] = false
      put_final(job, 'dead', ask.reason, false)
      tell('forced', job, ask.actor, head[ATTEMPT], ask.reason, changed({{'state', 'running', 'dead'}}))
      forced[#forced + 1] = id
    elseif not head[CANCEL_REASON] then
      head[CANCEL_REASON] = ask.reason
      wishes[id] = ask.reason
      rewrite(job)
      tell('cancel', job, ask.actor, false, ask.reason)
    end
    has_news = true
    verdicts[i] = {1, head[STATE], ''}
  end
end
free_places(forced, {})
write_crowds()
return finish(verdicts)
