-- name: found
-- What was founded first stays.
insert into founded (cluster, partitions, checksum) values ($1, $2, $3) on conflict (one) do nothing;

-- name: read_founded
-- One row, once there is one.
select cluster, partitions, checksum from founded;

-- name: read_routes
-- Where tenants live.
select tenant, home, spread, checksum from routes order by tenant;

-- name: add_route
-- A tenant that had none.
insert into routes (tenant, home, spread, checksum) values ($1, $2, $3, $4) on conflict (tenant) do nothing returning tenant;

-- name: replace_route
-- Only in place of what the caller has read.
update routes set home = $2, spread = $3, checksum = $4 where tenant = $1 and home = $5 and spread = $6 returning tenant;

-- name: add_inbox
-- Repeating one changes nothing. In the order of their keys, so that two writers never wait for each other in a ring.
insert into inbox (partition_id, id, tenant, data, by, checksum)
select * from unnest($1::integer[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::bigint[])
           as given (partition_id, id, tenant, data, by, checksum)
 order by given.partition_id, given.id
on conflict do nothing;

-- name: read_inbox
-- Whatever is there, in the order in which ids were drawn.
select id, partition_id, tenant, data, by, checksum from inbox where partition_id = $1 order by id limit $2;

-- name: drop_inbox
-- They are decided.
delete from inbox where partition_id = $1 and id = any($2::text[]);

-- name: lock_epoch
-- Before a claim: whether it is as it was written.
select epoch, owner, checksum from partitions where id = $1 for update;

-- name: sign_claim
-- In the same transaction.
update partitions set checksum = $2 where id = $1;

-- name: claim
-- Every earlier epoch is fenced from here on. It waits for a commit that is under way.
insert into partitions (id, epoch, owner, seq, tick, hash) values ($1, 1, $2, 0, 0, $3)
on conflict (id) do update set epoch = partitions.epoch + 1, owner = excluded.owner
returning epoch;

-- name: claim_watermark
-- And it waits for rows that are being written.
insert into watermarks (partition_id, epoch, watermark, hash, writes) values ($1, $2, 0, $3, 0)
on conflict (partition_id) do update set epoch = excluded.epoch;

-- name: add_machine
-- The settings that a partition was created with.
insert into machines (partition_id, settings, settings_checksum, header, header_checksum) values ($1, $2, $3, '', $4)
on conflict do nothing;

-- name: read_head
-- Where a partition stands: the last row of its journal, or where that was cut off.
select p.epoch, coalesce(j.seq, p.seq) as seq, coalesce(j.tick, p.tick) as tick, coalesce(j.hash, p.hash) as hash,
       w.watermark, w.hash as watermark_hash, w.writes, w.epoch as rows_epoch, p.owner, p.checksum
  from partitions p
  join watermarks w on w.partition_id = p.id
  left join lateral (select seq, tick, hash from journal
                      where partition_id = p.id and seq > p.seq order by seq desc limit 1) j on true
 where p.id = $1;

-- name: settle
-- After an outcome that nobody knows: wait for whatever of it is still under way. What comes later is fenced by its seq.
select p.id from partitions p join watermarks w on w.partition_id = p.id where p.id = $1 for no key update;

-- name: read_machine
-- What is kept once per partition.
select settings, settings_checksum, header, header_checksum from machines where partition_id = $1;

-- name: commit
-- The whole of a commit. Its first step is the fence: it locks the row that `claim` changes, where epoch and previous
-- seq match. No row back: fenced, or somebody else was first.
with head as (
    select id from partitions p
     where id = $1 and epoch = $2
       and (seq = $3 - 1 or exists (select from journal j where j.partition_id = $1 and j.seq = $3 - 1))
       for no key update
)
insert into journal (partition_id, seq, epoch, tick, hash, data)
select id, $3, $2, $4, $5, $6 from head
returning seq;

-- name: commit_with_payloads
-- The same, with values that are too large for the journal. A digest names its bytes, so only the day may be new.
with head as (
    select id from partitions p
     where id = $1 and epoch = $2
       and (seq = $3 - 1 or exists (select from journal j where j.partition_id = $1 and j.seq = $3 - 1))
       for no key update
), kept as (
    insert into payloads (digest, data, day)
    select distinct on (given.digest) given.digest, given.data, today()
      from head, unnest($7::text[], $8::bytea[]) as given (digest, data)
     order by given.digest
    on conflict (digest) do update set day = excluded.day, day_again = excluded.day where payloads.day < excluded.day
)
insert into journal (partition_id, seq, epoch, tick, hash, data)
select id, $3, $2, $4, $5, $6 from head
returning seq;

-- name: read_writes
-- How many writes of rows there were.
select writes from watermarks where partition_id = $1 and epoch = $2;

-- name: write_rows
-- Rows behind, fenced by epoch and watermark.
select write_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                  $13, $14, $15, $16, $17, $18, $19, $20, $21, $22);

-- name: write_rows_and_runs
-- The same, with ended runs that are new.
select done, case when done = 1 then put_runs($23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                                                $33, $34, $35, $36, $37, $38) end
  from write_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                  $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) as done;

-- name: write_all_rows
-- The same, with what most writes have none of.
select done, case when done = 1 then put_runs($23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                                                $33, $34, $35, $36, $37, $38) end,
       case when done = 1 then write_rest($1, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52,
                                              $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66) end
  from write_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                  $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) as done;

-- name: write_indexed_rows
-- The same, with index entries.
select done, case when done = 1 then put_runs($23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                                                $33, $34, $35, $36, $37, $38) end,
       case when done = 1 then write_rest($1, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52,
                                              $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66) end,
       case when done = 1 then put_index($1, $67, $68, $69, $70, $71) end
  from write_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                  $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) as done;

-- name: seqs_at
-- The rows of these ticks, each by binary search: ticks rise with the seq.
with recursive
wanted as (select unnest($2::bigint[]) as tick),
ends as (select min(seq) as first, max(seq) as last from journal where partition_id = $1),
search (tick, low, high) as (
    select wanted.tick, ends.first, ends.last from wanted, ends
    union all
    select search.tick,
           case when journal.tick < search.tick then journal.seq + 1 else search.low end,
           case when journal.tick < search.tick then search.high else journal.seq end
      from search join journal on journal.partition_id = $1 and journal.seq = (search.low + search.high) / 2
     where search.low < search.high
)
select journal.tick, journal.seq
  from search join journal on journal.partition_id = $1 and journal.seq = search.low and journal.tick = search.tick
 where search.low = search.high;

-- name: read_index
-- Which rows concern these subjects.
select partition_id, kind, subject, seq, data, checksum from journal_index
 where partition_id = $1 and kind = $2 and subject between $3 and $4 and seq > $5 and seq <= $6 order by seq, subject;

-- name: last_index
-- The latest row up to a seq that concerns a subject.
select partition_id, kind, subject, seq, data, checksum from journal_index
 where partition_id = $1 and kind = $2 and subject = $3 and seq <= $4 order by seq desc limit 1;

-- name: read_journal_archive_at
-- The first piece that reaches to a tick.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where partition_id = $1 and kind = 'journal' and tick >= $2 order by last limit 1;

-- name: read_journal
-- Committed rows behind a seq, in order.
select seq, tick, hash, data from journal where partition_id = $1 and seq > $2 order by seq limit $3;

-- name: read_documents
-- Every definition that a partition has, once.
select distinct on (hash) tenant, hash, partition_id, name, document, put_ms, checksum from definitions
 where partition_id = $1 order by hash, tenant;

-- name: read_live_runs
-- Unfinished runs at the watermark.
select number, data, checksum from live_runs where number between $1 and $2 order by number;

-- name: read_live_tasks
-- Unfinished tasks at the watermark.
select number, data, checksum from live_tasks where number between $1 and $2 order by number;

-- name: read_schedules
-- All schedules at the watermark.
select number, data, checksum from schedules where number between $1 and $2 order by number;

-- name: put_payload
-- A digest names its bytes, so only the day may be new.
insert into payloads (digest, data, day) values ($1, $2, today())
on conflict (digest) do update set day = excluded.day, day_again = excluded.day where payloads.day < excluded.day;

-- name: read_payloads
-- The bytes of digests.
select digest, data from payloads where digest = any($1::text[]);

-- name: find_blocks
-- Those of stretches to which ids may lead, and of others that are named, unopened. The limit is no limit, since a stretch
-- has 256 numbers: without it the planner takes a stretch for a ninth of the table, and reads all of a large one.
select b.first, b.held, b.marks, octet_length(b.data), b.outline_checksum
  from (select stretch from run_clues where clue = any($1::bigint[])
        union
        select unnest($2::bigint[])) as near
  cross join lateral (select first, held, marks, data, outline_checksum from run_blocks
                       where first >= near.stretch << 8 and first < (near.stretch + 1) << 8
                       order by first limit 256) as b;

-- name: open_blocks
-- In order.
select first, data, checksum from run_blocks where first = any($1::bigint[]) order by first;

-- name: open_stretches
-- All their blocks, in order; the limit is as in find_blocks.
select b.first, b.data, b.checksum
  from unnest($1::bigint[]) as wanted (stretch)
  cross join lateral (select first, data, checksum from run_blocks
                       where first >= wanted.stretch << 8 and first < (wanted.stretch + 1) << 8
                       order by first limit 256) as b
 order by b.first;

-- name: blocks_after
-- Those from one on, in order.
select first, data, checksum from run_blocks where first between $1 and $2 order by first limit $3;

-- name: drop_blocks
-- What is left of them is put in their place.
delete from run_blocks where first = any($1::bigint[]);

-- name: add_blocks
-- In place of those; what leads to them is there.
insert into run_blocks (first, held, marks, data, outline_checksum, checksum)
select * from unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[]);

-- name: whole_blocks_after
-- Those from one on, in order, with everything of them.
select first, held, marks, outline_checksum, data, checksum from run_blocks where first between $1 and $2
 order by first limit $3;

-- name: count_leading
-- How many of these lead to runs.
select (select count(*) from run_clues c join unnest($1::bigint[], $2::bigint[]) as given (clue, stretch)
            on c.clue = given.clue and c.stretch = given.stretch)
     + (select count(*) from run_groups g
          join unnest($3::text[], $4::bigint[], $5::integer[], $6::text[], $7::text[])
               as given (tenant, stretch, state, workflow, schedule)
            on g.tenant = given.tenant and g.stretch = given.stretch and g.state = given.state
           and g.workflow = given.workflow and g.schedule = given.schedule)
     + (select count(*) from run_keys k join unnest($8::text[], $9::text[], $10::bigint[]) as given (tenant, key, number)
            on k.tenant = given.tenant and k.key = given.key and k.number = given.number);

-- name: count_all_leading
-- How many there are at all.
select (select count(*) from run_clues), (select count(*) from run_groups), (select count(*) from run_keys);

-- name: drop_groups
-- No run of a stretch is like these any more.
delete from run_groups g
 using unnest($1::text[], $2::bigint[], $3::integer[], $4::text[], $5::text[])
       as gone (tenant, stretch, state, workflow, schedule)
 where g.tenant = gone.tenant and g.stretch = gone.stretch and g.state = gone.state and g.workflow = gone.workflow
   and g.schedule = gone.schedule;

-- name: drop_clues
-- No id of a stretch has these any more.
delete from run_clues h using unnest($1::bigint[], $2::bigint[]) as gone (clue, stretch)
 where h.clue = gone.clue and h.stretch = gone.stretch;

-- name: drop_run_keys
-- These runs are in no block.
delete from run_keys k using unnest($1::text[], $2::text[], $3::bigint[]) as gone (tenant, key, number)
 where k.tenant = gone.tenant and k.key = gone.key and k.number = gone.number;

-- name: put_runs
-- New ones.
select put_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: add_attempts
-- Behind those that are there.
insert into attempts (run, data, checksum) select * from unnest($1::bigint[], $2::bytea[], $3::bigint[]);

-- name: find_keys
-- The latest under each submit key.
select r.number
  from unnest($2::text[]) as wanted (key)
 cross join lateral (select number from run_keys where tenant = $1 and key = wanted.key
                      order by number desc limit 1) r;

-- name: list_stretches
-- Those that have runs of a tenant, newest first.
select distinct stretch from run_groups where tenant = $1 and stretch <= $2 order by stretch desc limit $3;

-- name: list_stretches_by_state
-- Each state gives no more than is wanted. Also of one workflow or schedule where those are named.
select distinct r.stretch
  from (select distinct unnest($4::integer[])) as wanted (state)
 cross join lateral (select distinct stretch from run_groups
                      where tenant = $1 and state = wanted.state and stretch <= $2
                        and ($5::text = '' or workflow = $5) and ($6::text = '' or schedule = $6)
                      order by stretch desc limit $3) r
 order by r.stretch desc limit $3;

-- name: list_stretches_by_workflow
-- Of one workflow, in any state.
select distinct stretch from run_groups
 where tenant = $1 and workflow = $4 and stretch <= $2 order by stretch desc limit $3;

-- name: list_stretches_by_schedule
-- Of one schedule, in any state; also of one workflow where that is named.
select distinct stretch from run_groups
 where tenant = $1 and schedule = $4 and schedule <> '' and stretch <= $2 and ($5::text = '' or workflow = $5)
 order by stretch desc limit $3;

-- name: list_stretches_by_clues
-- Those that have an entry of each group, newest first, and runs of this kind. Each entry comes with its group's number.
-- With `exists`, the planner would read all of `run_groups` for a few candidates.
select stretch from (
    select c.stretch, count(distinct ($2::integer[])[array_position($3::bigint[], c.clue)]) as met
      from run_clues c where c.clue = any($3::bigint[]) and c.stretch between $4 and $5
     group by c.stretch) candidates
 where met = $6
   and (select true from run_groups r
         where r.tenant = $1 and r.stretch = candidates.stretch
           and ($7::text = '' or r.workflow = $7) and ($8::text = '' or r.schedule = $8)
           and (cardinality($9::integer[]) = 0 or r.state = any($9)) limit 1)
 order by stretch desc limit $10;

-- name: read_attempts
-- Oldest first.
select data, checksum from attempts where run = $1 order by place;

-- name: read_children
-- Results of a map's children, by child.
select child, value, checksum from children where run = $1 and step = $2 order by child;

-- name: read_cache
-- The values under keys.
select key, value, kept_ms, checksum from cache where key = any($1::text[]);

-- name: read_definition
-- A tenant's definition by its hash.
select tenant, hash, partition_id, name, document, put_ms, checksum from definitions where tenant = $1 and hash = $2
 order by partition_id limit 1;

-- name: read_fates
-- Ranges of a schedule that reach into a window, oldest first.
select tenant, schedule, from_ms, number, backfill, to_ms, data, checksum from fates where tenant = $1 and schedule = $2 and from_ms < $3 and to_ms >= $4
 order by from_ms, number, backfill limit $5;

-- name: list_backfills
-- Those of a tenant that ended, newest first.
select number, tenant, schedule, data, checksum from backfills where tenant = $1 order by number desc limit $2;

-- name: add_log_chunks
-- Repeating a chunk changes nothing.
insert into log_chunks (task, attempt, chunk, first, lines, size, digest, written_ms, checksum)
select * from unnest($1::bigint[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
                     $8::bigint[], $9::bigint[])
on conflict do nothing;

-- name: read_log_chunks
-- Where the pieces of an attempt's log lie, in order.
select task, attempt, chunk, first, lines, size, digest, written_ms, checksum
  from log_chunks where task = $1 and attempt = $2 and chunk > $3 order by chunk;

-- name: read_horizon
-- How long the oldest snapshot is held, in ms: nothing that died since can be cleared away.
select coalesce(max(extract(epoch from clock_timestamp() - since) * 1000), 0)::bigint from (
    select xact_start as since from pg_stat_activity
     where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
    union all
    select prepared from pg_prepared_xacts
) as held;

-- name: read_time
-- The server's clock, in ms.
select (extract(epoch from clock_timestamp()) * 1000)::bigint;

-- name: beat
-- This node lives.
insert into members (session, node, address, data, until)
values ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 millisecond')
on conflict (session) do update set
    node = excluded.node, address = excluded.address, data = excluded.data, until = excluded.until;

-- name: leave
-- Everything of it is free.
with gone as (delete from members where session = $1)
delete from leases where session = $1;

-- name: read_members
-- Those that live.
select data from members where until > clock_timestamp() order by session;

-- name: forget_members
-- Those that have been gone for long.
delete from members where until < clock_timestamp() - interval '1 hour';

-- name: take_lease
-- Where it was free, run out, or its own.
insert into leases (partition_id, session, node, address, until)
values ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 millisecond')
on conflict (partition_id) do update set
    session = excluded.session, node = excluded.node, address = excluded.address, until = excluded.until
 where leases.session = excluded.session or leases.until <= clock_timestamp()
returning partition_id;

-- name: renew_leases
-- Those that are still its own, run out or not. In order, so that nobody waits for another in a ring.
with mine as (
    select partition_id from leases where partition_id = any($1::integer[]) and session = $2
     order by partition_id for update
)
update leases set until = clock_timestamp() + $3 * interval '1 millisecond'
  from mine where leases.partition_id = mine.partition_id and leases.session = $2
returning leases.partition_id;

-- name: release_lease
-- Free at once.
delete from leases where partition_id = $1 and session = $2;

-- name: read_leases
-- Those that have not run out.
select partition_id, session, node, address from leases where until > clock_timestamp() order by partition_id;

-- name: children_between
-- What is kept of children under these numbers.
select run, step, child, value, checksum from children where run between $1 and $2 order by run, step, child;

-- name: lock_owner
-- Whether an epoch is the owner's, and up to where its rows are true. A claim waits until this has ended, and so do rows.
select w.watermark from partitions p join watermarks w on w.partition_id = p.id
 where p.id = $1 and p.epoch = $2 for share of p for no key update of w;

-- name: put_archive
-- The object is there already.
insert into archives (object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms,
                      checksum)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) on conflict do nothing;

-- name: move_runs
-- They are in no block any more.
with kept as (
    insert into archived (tenant, id, number, object, checksum)
    select given.tenant, given.id, given.number, $6, given.checksum
      from unnest($1::text[], $2::text[], $3::bigint[], $5::bigint[]) as given (tenant, id, number, checksum)
    on conflict (tenant, id) do update set
        number = excluded.number, object = excluded.object, checksum = excluded.checksum
), attempts_gone as (
    delete from attempts where run = any($3::bigint[])
)
delete from children c using unnest($3::bigint[], $4::integer[]) as gone (number, steps)
 where c.run >= gone.number and c.run < gone.number + gone.steps;

-- name: cut_journal
-- Where the journal begins moves with what is taken away from it.
update partitions set seq = $2, tick = $3, hash = $4 where id = $1 and seq < $2;

-- name: drop_journal
-- What is in the archive.
delete from journal where partition_id = $1 and seq <= $2;

-- name: read_archived
-- Where runs are.
select tenant, id, number, object, checksum from archived where tenant = $1 and id = any($2::text[]);

-- name: read_journal_archive
-- The one that holds a row, if any does.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where partition_id = $1 and kind = 'journal' and last >= $2 order by last limit 1;

-- name: read_archives_over
-- Those of a kind that may hold a number, oldest first.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where partition_id = $1 and kind = $2 and first <= $3 and last >= $3 order by to_ms, object;

-- name: read_old_archives
-- Oldest first.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where to_ms < $1 order by to_ms, object limit $2;

-- name: drop_archive
-- It is gone, and the runs in it, or the index entries of its rows. What says how something is stays until a later
-- entry says otherwise.
with runs_gone as (delete from archived where object = $1),
index_gone as (
    delete from journal_index entry using archives piece
     where piece.object = $1 and piece.kind = 'journal' and entry.partition_id = piece.partition_id
       and entry.seq <= piece.last
       and (entry.kind not in (1, 2, 3) or exists (
           select 1 from journal_index later
            where later.partition_id = entry.partition_id and later.kind = entry.kind
              and later.subject = entry.subject and later.seq > entry.seq and later.seq <= piece.last))
)
delete from archives where object = $1;

-- name: log_chunks_after
-- Pieces of logs of a partition's tasks, in the order of their places.
select task, attempt, chunk, first, lines, size, digest, written_ms, checksum
  from log_chunks where (task, attempt, chunk) > ($1, $2, $3) and task <= $4 order by task, attempt, chunk limit $5;

-- name: read_named_logs
-- Which bytes a piece names that is not old.
select distinct digest from log_chunks where digest = any($1::text[]) and written_ms >= $2;

-- name: drop_log_chunks
-- They are old.
delete from log_chunks l using unnest($1::bigint[], $2::integer[], $3::integer[]) as given (task, attempt, chunk)
 where l.task = given.task and l.attempt = given.attempt and l.chunk = given.chunk;

-- name: add_partition
-- From elsewhere.
insert into partitions (id, epoch, owner, seq, tick, hash, checksum) values ($1, $2, $3, $4, $5, $6, $7);

-- name: add_watermark
-- From elsewhere.
insert into watermarks (partition_id, epoch, watermark, hash, writes) values ($1, $2, $3, $4, 0);

-- name: add_whole_machine
-- From elsewhere.
insert into machines (partition_id, settings, settings_checksum, header, header_checksum)
values ($1, $2, $3, $4, $5);

-- name: attempts_between
-- By run, oldest first.
select run, data, checksum from attempts where run between $1 and $2 order by run, place;

-- name: read_journal_cut
-- The seq behind which the journal begins.
select seq from partitions where id = $1;

-- name: drop_payload
-- It was an artifact that nothing names any more.
delete from payloads where digest = $1;

-- name: add_payloads
-- From elsewhere.
insert into payloads (digest, data, day) select *, today() from unnest($1::text[], $2::bytea[]) on conflict do nothing;

-- name: read_odd_days
-- Values whose day was damaged.
select digest from payloads where day <> day_again limit 1;

-- name: renew_payloads
-- Those of them that are here, which are needed today. In order, so that two of these do not wait for each other.
with known as (
    select digest, day from payloads where digest = any($1::text[]) order by digest for no key update
), renewed as (
    update payloads p set day = today(), day_again = today() from known where p.digest = known.digest and known.day < today()
)
select digest from known;

-- name: drop_payloads
-- Values of earlier days. What an archive or a log has for its object is looked after by those.
delete from payloads p
 where p.day < $1
   and p.digest in (
        select digest from payloads v
         where v.day between 1 and $1 - 1 and v.day = v.day_again
           and not exists (select from archives a where a.object = v.digest)
           and not exists (select from log_chunks l where l.digest = v.digest)
         order by v.day limit $2)
returning 1;

-- name: read_named_objects
-- Those that an archive or a log has for its object.
select object from archives where object = any($1::text[])
union
select digest from log_chunks where digest = any($1::text[]);

-- name: note_renewal
-- Everything that the partition names.
insert into renewals (partition_id, day) values ($1, today()) on conflict (partition_id) do update set day = excluded.day
returning day;

-- name: sign_renewal
-- In the same transaction.
update renewals set checksum = $2 where partition_id = $1;

-- name: read_renewals
-- The day of each partition, 0 where there was none; also one that is of no partition, which its checksum tells.
select coalesce(p.id, r.partition_id), coalesce(r.day, 0), coalesce(r.checksum, 0)
  from partitions p full join renewals r on r.partition_id = p.id order by 1;
