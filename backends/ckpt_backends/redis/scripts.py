"""What Redis does as a whole: short scripts that check and change one namespace, sent with their text.

Values never pass through a script that writes: copying them into Lua and back halves the throughput. A batch
is one transaction (MULTI … EXEC): plain commands write the values, and a script at its end makes them count,
or takes them away again. Sending the text each time costs a few hundred bytes and needs no second attempt
after a restart or a failover, when a server knows no script yet; inside a transaction there could be none.

Lua passes at most a few thousand arguments to one command, hence the chunks.
"""

from __future__ import annotations

_CHUNKS = """
local function chunks(first, last, step, act)
  while first <= last do
    local stop = math.min(first + step - 1, last)
    act(first, stop)
    first = stop + 1
  end
end
"""

_EVEN_IF_FULL = "redis.call('HDEL', KEYS[1], 'refused')\n"
"""Redis refuses memory to a script at maxmemory only before its first write. This one frees, and is allowed:
what it takes to drop, truncate and fence is a few bytes, and must work when there is no room."""

REGISTER = """
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then
  redis.call('SADD', KEYS[1], ARGV[1])
end
return 1
"""
"""Notes a namespace; one that is known needs no memory, so it works when there is none."""

WROTE_ROWS = (
    _CHUNKS
    + """
local ledger, rows, order, expiry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local place = redis.call('HGET', ledger, 'place') or '0.0'
if place ~= ARGV[1] then
  redis.call('UNLINK', rows, order, expiry)
  return {place, 0}
end
if #ARGV == 3 and redis.call('EXISTS', expiry) == 0 then
  return {place, 0}
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local until_ms = string.format('%.0f', now_ms + tonumber(ARGV[2]))
chunks(4, #ARGV, 1000, function(i, j)
  local members = {}
  for k = i, j do
    members[#members + 1] = until_ms
    members[#members + 1] = ARGV[k]
  end
  redis.call('ZADD', expiry, unpack(members))
end)
local due = redis.call('ZRANGEBYSCORE', expiry, '-inf', now_ms, 'LIMIT', 0, ARGV[3])
if #due > 0 then
  redis.call('HDEL', rows, unpack(due))
  redis.call('ZREM', order, unpack(due))
  redis.call('ZREM', expiry, unpack(due))
end
return {place, 1}
"""
)
"""The end of a transaction that has written rows at the place ARGV[1].

Returns the place where rows belong, and whether some of those there expire. If it is another place, no reader
can ever see what was written, and it is removed. ARGV[4…] are keys that expire in ARGV[2] milliseconds, if
any. At most ARGV[3] of those that expired long ago are swept.
"""

MOVE_ROWS = (
    _EVEN_IF_FULL
    + """
local place = redis.call('HGET', KEYS[1], 'place') or '0.0'
if place ~= ARGV[1] then
  return place
end
for i = 2, 4 do
  if ARGV[3] == 'clear' then
    redis.call('UNLINK', KEYS[i])
  elseif redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('RENAME', KEYS[i], KEYS[i + 3])
  end
end
redis.call('HSET', KEYS[1], 'place', ARGV[2])
return ARGV[2]
"""
)
"""From place ARGV[1] to ARGV[2], with the rows or (ARGV[3] = clear) without. Returns where they are now."""

PAGE = """
if KEYS[3] then
  local place = redis.call('HGET', KEYS[3], 'place') or '0.0'
  if place ~= ARGV[5] then
    return {place}
  end
end
local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local bytes, most, page = 0, tonumber(ARGV[4]), {}
for i = 1, #names do
  local size = redis.call('HSTRLEN', KEYS[1], names[i])
  if i > 1 and bytes + size > most then
    break
  end
  bytes = bytes + size
  page[i] = names[i]
end
if #page == 0 then
  return {ARGV[5], page, page}
end
return {ARGV[5], page, redis.call('HMGET', KEYS[1], unpack(page))}
"""
"""Names from ARGV[1] to ARGV[2] in order, with their values: ARGV[3] of them or ARGV[4] bytes, at least one.

For rows, KEYS[3] is the ledger and ARGV[5] their place; if they are elsewhere, only where that is.
"""

NEWEST_CELLS = (
    _CHUNKS
    + """
local names = {}
for i = 1, #ARGV do
  local up_to = '(' .. string.sub(ARGV[i], 2, -10) .. '\\2'
  local found = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[i], up_to, 'LIMIT', 0, 1)
  names[#names + 1] = found[1]
end
local values = {}
chunks(1, #names, 1000, function(i, j)
  for _, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names, i, j))) do
    values[#values + 1] = value
  end
end)
return {names, values}
"""
)
"""For each start of a range of cells of one key: the first one in it, with its value."""

NOTE_STAMP = """
local written = tonumber(redis.call('HGET', KEYS[1], 'written') or '0')
if tonumber(ARGV[1]) > written then
  redis.call('HSET', KEYS[1], 'written', ARGV[1])
end
return 1
"""
"""Notes that cells with the stamp ARGV[1] were written."""

PARK_CELLS = """
if tonumber(redis.call('HGET', KEYS[1], 'newest') or '0') + 1 ~= tonumber(ARGV[1]) then
  for i = 2, 3 do
    if redis.call('EXISTS', KEYS[i]) == 1 then
      redis.call('RENAME', KEYS[i], KEYS[i + 2])
    end
  end
end
return 1
"""
"""The begin of a transaction that adds the record ARGV[1]: if it is not the next, all cells step aside.

What the transaction then writes goes to the empty places, and `COMMITTED` puts everything back. So a second
attempt, or one that arrives late, changes nothing, and no reader sees what happens in between.
"""

COMMITTED = (
    _EVEN_IF_FULL
    + """
local ledger = KEYS[1]
if tonumber(redis.call('HGET', ledger, 'newest') or '0') + 1 ~= tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[2], KEYS[3])
  for i = 2, 3 do
    if redis.call('EXISTS', KEYS[i + 2]) == 1 then
      redis.call('RENAME', KEYS[i + 2], KEYS[i])
    end
  end
  redis.call('HSET', ledger, 'refused', ARGV[1])
  return 0
end
if tonumber(ARGV[2]) > tonumber(redis.call('HGET', ledger, 'written') or '0') then
  redis.call('HSET', ledger, 'written', ARGV[2])
end
if ARGV[3] then
  redis.call('HSET', ledger, ARGV[1], ARGV[3], 'newest', ARGV[1])
end
return 1
"""
)
"""The end of a transaction that has written cells with the stamp ARGV[2]: adds the record ARGV[3], if any.

If the number ARGV[1] is not the next, the cells go, and those that stepped aside come back. A refusal writes
something too, so that a following WAIT is about everything that led to it.
"""

LOAD = (
    _CHUNKS
    + """
local head = redis.call('HMGET', KEYS[1], 'newest', 'oldest')
local newest, oldest = tonumber(head[1] or '0'), tonumber(head[2] or '1')
local first = math.max(tonumber(ARGV[1]) + 1, oldest)
local records = {}
chunks(first, newest, 1000, function(i, j)
  local numbers = {}
  for number = i, j do
    numbers[#numbers + 1] = string.format('%.0f', number)
  end
  for _, record in ipairs(redis.call('HMGET', KEYS[1], unpack(numbers))) do
    records[#records + 1] = record
  end
end)
return {newest, first, records}
"""
)
"""The number of the newest record; the number of the first above ARGV[1], and all from there on."""

FORGET = (
    _CHUNKS
    + """
local head = redis.call('HMGET', KEYS[1], 'newest', 'oldest')
local newest, oldest = tonumber(head[1] or '0'), tonumber(head[2] or '1')
local below = math.min(tonumber(ARGV[1]), newest + 1)
if below > oldest then
  chunks(oldest, below - 1, 1000, function(i, j)
    local numbers = {}
    for number = i, j do
      numbers[#numbers + 1] = string.format('%.0f', number)
    end
    redis.call('HDEL', KEYS[1], unpack(numbers))
  end)
  redis.call('HSET', KEYS[1], 'oldest', string.format('%.0f', below))
end
return 1
"""
)
"""Removes the records below the number ARGV[1]."""

RESERVE_STAMPS = (
    _EVEN_IF_FULL
    + """
local time = redis.call('TIME')
local given = tonumber(redis.call('HGET', KEYS[1], 'stamp') or '0')
local last = math.max(given, tonumber(ARGV[1]), time[1] * 1000000 + time[2])
redis.call('HSET', KEYS[1], 'stamp', string.format('%.0f', last + tonumber(ARGV[2])))
return string.format('%.0f', last)
"""
)
"""ARGV[2] stamps above ARGV[1] for one handle; returns the number before the first.

They start at the microsecond of now, so that a server that has lost its newest writes gives none twice.
"""

REMOVE_CELLS = (
    _CHUNKS
    + """
for i = 1, #ARGV do
  local up_to = '(' .. string.sub(ARGV[i], 2, -10) .. '\\2'
  local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[i], up_to)
  chunks(1, #names, 1000, function(a, b)
    redis.call('HDEL', KEYS[1], unpack(names, a, b))
    redis.call('ZREM', KEYS[2], unpack(names, a, b))
  end)
end
return 1
"""
)
"""For each start of a range of cells of one key: removes the whole range."""

CLEAR_CELLS = """
if tonumber(redis.call('HGET', KEYS[1], 'written') or '0') > tonumber(ARGV[1]) then
  return 0
end
redis.call('UNLINK', KEYS[2], KEYS[3])
return 1
"""
"""Removes all cells at once if none has a stamp above ARGV[1]; otherwise nothing, and returns 0."""
