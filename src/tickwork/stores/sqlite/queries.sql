-- name: found
-- What was founded first stays.
insert into founded (one, cluster, partitions, checksum) values (1, ?, ?, ?) on conflict do nothing;

-- name: read_founded
-- One row, once there is one.
select cluster, partitions, checksum from founded;

-- name: read_routes
-- Where tenants live.
select tenant, home, spread, checksum from routes order by tenant;

-- name: add_route
-- A tenant that had none.
insert into routes (tenant, home, spread, checksum) values (?, ?, ?, ?) on conflict do nothing;

-- name: replace_route
-- Only in place of what the caller has read.
update routes set home = ?, spread = ?, checksum = ? where tenant = ? and home = ? and spread = ?;

-- name: add_inbox
-- Repeating one changes nothing.
insert into inbox (id, partition_id, tenant, data, by, checksum) values (?, ?, ?, ?, ?, ?) on conflict do nothing;

-- name: read_inbox
-- Whatever is there, in the order in which ids were drawn.
select id, partition_id, tenant, data, by, checksum from inbox where partition_id = ? order by id limit ?;

-- name: drop_inbox
-- It is decided.
delete from inbox where partition_id = ? and id = ?;

-- name: claim_new
-- A partition that nobody had before.
insert into partitions (id, epoch, owner, seq, tick, hash, watermark, watermark_hash, checksum)
values (:id, :epoch, :owner, 0, 0, :genesis, 0, :genesis, :checksum);

-- name: claim_again
-- Every earlier epoch is fenced from here on.
update partitions set epoch = :epoch, owner = :owner, checksum = :checksum where id = :id;

-- name: add_machine
-- The settings that a partition was created with.
insert into machines (partition_id, settings, settings_checksum, header, header_checksum)
values (:id, :settings, :settings_checksum, x'', :header_checksum);

-- name: read_head
-- Where a partition stands.
select epoch, seq, tick, hash, watermark, watermark_hash, checksum, owner from partitions where id = ?;

-- name: read_machine
-- What is kept once per partition.
select settings, settings_checksum, header, header_checksum from machines where partition_id = ?;

-- name: advance_head
-- First statement of every commit. No row changed: fenced, or somebody else was first.
update partitions set seq = ?, tick = ?, hash = ? where id = ? and epoch = ? and seq = ?;

-- name: add_journal_row
-- A seq is written once; a second one breaks the primary key.
insert into journal (partition_id, seq, epoch, tick, hash, data) values (?, ?, ?, ?, ?, ?);

-- name: add_payload
-- A digest names its bytes, so only the day may be new.
insert into payloads (digest, data, checksum, day, day_again)
values (?, ?, ?, unixepoch() / 86400, unixepoch() / 86400)
on conflict (digest) do update set day = excluded.day, day_again = excluded.day where day < excluded.day;

-- name: advance_watermark
-- First statement of every write of rows. No row changed: fenced, or these rows are not the next.
update partitions set watermark = :through, watermark_hash = :head
 where id = :id and epoch = :epoch and seq >= :through and watermark <= :through;

-- name: put_header
-- The rest of the machine, as it stands now.
update machines set header = ?, header_checksum = ? where partition_id = ?;

-- name: drop_live_run
-- It ended.
delete from live_runs where number = ?;

-- name: put_live_run
-- As it stands now.
insert into live_runs (number, data, checksum) values (?, ?, ?)
on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;

-- name: drop_live_task
-- It ended.
delete from live_tasks where number = ?;

-- name: put_live_task
-- As it stands now.
insert into live_tasks (number, data, checksum) values (?, ?, ?)
on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;

-- name: drop_schedule
-- It was removed.
delete from schedules where number = ?;

-- name: put_schedule
-- As it stands now.
insert into schedules (number, data, checksum) values (?, ?, ?)
on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;

-- name: put_fate
-- A range that grows keeps its beginning.
insert into fates (tenant, schedule, from_ms, number, backfill, to_ms, data, checksum)
values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, schedule, from_ms, number, backfill) do update set
    to_ms = excluded.to_ms, data = excluded.data, checksum = excluded.checksum;

-- name: put_backfill
-- It has ended.
insert into backfills (number, tenant, schedule, data, checksum) values (?, ?, ?, ?, ?)
on conflict (number) do update set
    tenant = excluded.tenant, schedule = excluded.schedule, data = excluded.data, checksum = excluded.checksum;

-- name: put_definition
-- A hash names its document; the name and time of the last put count.
insert into definitions (tenant, hash, partition_id, name, document, put_ms, checksum) values (?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, hash, partition_id) do update set
    name = excluded.name, document = excluded.document, put_ms = excluded.put_ms, checksum = excluded.checksum;

-- name: add_block
-- Its name is free: a block that changes is dropped first.
insert into run_blocks (first, held, marks, outline_checksum, data, checksum) values (?, ?, ?, ?, ?, ?);

-- name: drop_block
-- What is left of it is put in its place.
delete from run_blocks where first = ?;

-- name: read_blocks
-- In order; those of a stretch are neighbours.
select first, data, checksum from run_blocks where first between ? and ? order by first;

-- name: read_outlines
-- The same, unopened.
select first, held, marks, length(data), outline_checksum from run_blocks where first between ? and ?;

-- name: add_clue
-- Most are there already.
insert into run_clues (clue, stretch) values (?, ?) on conflict do nothing;

-- name: read_clue
-- Where an id may be.
select stretch from run_clues where clue = ?;

-- name: drop_clue
-- No id of a stretch has it any more.
delete from run_clues where clue = ? and stretch = ?;

-- name: add_run_key
-- All runs that have it.
insert into run_keys (tenant, key, number) values (?, ?, ?) on conflict do nothing;

-- name: read_run_key
-- The latest under a submit key.
select number from run_keys where tenant = ? and key = ? order by number desc limit 1;

-- name: has_run_key
-- Whether it leads to a run.
select 1 from run_keys where tenant = ? and key = ? and number = ?;

-- name: drop_run_key
-- It is in no block.
delete from run_keys where tenant = ? and key = ? and number = ?;

-- name: add_group
-- Most are there already.
insert into run_groups (tenant, stretch, state, workflow, schedule) values (?, ?, ?, ?, ?) on conflict do nothing;

-- name: has_group
-- Whether a stretch has runs like this.
select 1 from run_groups where tenant = ? and stretch = ? and state = ? and workflow = ? and schedule = ?;

-- name: drop_group
-- No run of a stretch is like this any more.
delete from run_groups where tenant = ? and stretch = ? and state = ? and workflow = ? and schedule = ?;

-- name: list_stretches
-- Those that have runs of a tenant, newest first.
select distinct stretch from run_groups
 where tenant = :tenant and stretch <= :stretch order by stretch desc limit :limit;

-- name: list_stretches_by_state
-- Of one state; also of one workflow or schedule where those are named.
select distinct stretch from run_groups indexed by run_groups_by_state
 where tenant = :tenant and state = :state and stretch <= :stretch
   and (:workflow = '' or workflow = :workflow) and (:schedule = '' or schedule = :schedule)
 order by stretch desc limit :limit;

-- name: list_stretches_by_workflow
-- Of one workflow, in any state.
select distinct stretch from run_groups indexed by run_groups_by_workflow
 where tenant = :tenant and workflow = :workflow and stretch <= :stretch order by stretch desc limit :limit;

-- name: list_stretches_by_schedule
-- Of one schedule, in any state; also of one workflow where that is named.
select distinct stretch from run_groups indexed by run_groups_by_schedule
 where tenant = :tenant and schedule = :schedule and schedule <> '' and stretch <= :stretch
   and (:workflow = '' or workflow = :workflow)
 order by stretch desc limit :limit;

-- name: list_stretches_by_clues
-- Those that have an entry of each group, newest first, and runs of this kind. The groups are lists in a list, as JSON.
select stretch from (
    select c.stretch as stretch, count(distinct g.key) as met
      from json_each(:groups) g cross join json_each(g.value) k cross join run_clues c on c.clue = k.value
     where c.stretch between :low and :high
     group by c.stretch) candidates
 where met = :count
   and exists (select 1 from run_groups r
                where r.tenant = :tenant and r.stretch = candidates.stretch
                  and (:workflow = '' or r.workflow = :workflow) and (:schedule = '' or r.schedule = :schedule)
                  and (:states = '[]' or r.state in (select value from json_each(:states))))
 order by stretch desc limit :limit;

-- name: add_attempts
-- Attempts of one run, behind those that are there.
insert into attempts (run, data, checksum) values (?, ?, ?);

-- name: put_child
-- The result of one child of a map.
insert into children (run, step, child, value, checksum) values (?, ?, ?, ?, ?)
on conflict (run, step, child) do update set value = excluded.value, checksum = excluded.checksum;

-- name: put_cache
-- The latest value under a key.
insert into cache (key, value, kept_ms, checksum) values (?, ?, ?, ?)
on conflict (key) do update set value = excluded.value, kept_ms = excluded.kept_ms, checksum = excluded.checksum;

-- name: read_journal
-- Committed rows behind a seq, in order.
select seq, tick, hash, data from journal where partition_id = ? and seq > ? order by seq limit ?;

-- name: read_last_row
-- The row that the head must agree with.
select seq, tick, hash, epoch from journal where partition_id = ? order by seq desc limit 1;

-- name: read_documents
-- Every definition that a partition has, once.
select hash, document, checksum, tenant, name, put_ms from definitions where partition_id = ? order by hash;

-- name: read_live_runs
-- Unfinished runs at the watermark.
select number, data, checksum from live_runs where number between ? and ? order by number;

-- name: read_live_tasks
-- Unfinished tasks at the watermark.
select number, data, checksum from live_tasks where number between ? and ? order by number;

-- name: read_schedules
-- All schedules at the watermark.
select number, data, checksum from schedules where number between ? and ? order by number;

-- name: read_fates
-- Ranges of a schedule that reach into a window, oldest first.
select tenant, schedule, from_ms, number, backfill, to_ms, data, checksum from fates
 where tenant = ? and schedule = ? and from_ms < ? and to_ms >= ?
 order by from_ms, number, backfill limit ?;

-- name: list_backfills
-- Those of a tenant that ended, newest first.
select number, tenant, schedule, data, checksum from backfills where tenant = ? order by number desc limit ?;

-- name: put_index
-- Entries of one kind, subject and seq replace each other.
insert into journal_index (partition_id, kind, subject, seq, data, checksum) values (?, ?, ?, ?, ?, ?)
on conflict (partition_id, kind, subject, seq) do update set data = excluded.data, checksum = excluded.checksum;

-- name: read_index
-- Which rows concern these subjects.
select partition_id, kind, subject, seq, data, checksum from journal_index
 where partition_id = ? and kind = ? and subject between ? and ? and seq > ? and seq <= ? order by seq, subject;

-- name: last_index
-- The latest row up to a seq that concerns a subject.
select partition_id, kind, subject, seq, data, checksum from journal_index
 where partition_id = ? and kind = ? and subject = ? and seq <= ? order by seq desc limit 1;

-- name: drop_index
-- The rows are gone. What says how something is stays until a later entry says otherwise.
delete from journal_index
 where partition_id = ?1 and seq <= ?2
   and (kind not in (1, 2, 3) or exists (
       select 1 from journal_index later
        where later.partition_id = ?1 and later.kind = journal_index.kind and later.subject = journal_index.subject
          and later.seq > journal_index.seq and later.seq <= ?2));

-- name: read_tick
-- The tick of one row.
select tick from journal where partition_id = ? and seq = ?;

-- name: read_journal_ends
-- The first and the last row that are here.
select min(seq), max(seq) from journal where partition_id = ?;

-- name: read_journal_archive_at
-- The first piece that reaches to a tick.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where partition_id = ? and kind = 'journal' and tick >= ? order by last limit 1;

-- name: read_archive
-- What an object is.
select kind, partition_id, last from archives where object = ?;

-- name: read_payload
-- The bytes of a digest.
select data, checksum from payloads where digest = ?;

-- name: read_attempts
-- Oldest first.
select data, checksum from attempts where run = ? order by place;

-- name: read_children
-- Results of a map's children, by child.
select child, value, checksum from children where run = ? and step = ? order by child;

-- name: read_cache
-- The value under a key.
select key, value, kept_ms, checksum from cache where key = ?;

-- name: read_definition
-- A tenant's definition by its hash.
select hash, tenant, name, document, put_ms, partition_id, checksum from definitions where tenant = ? and hash = ? limit 1;

-- name: add_log_chunk
-- Repeating a chunk changes nothing.
insert into log_chunks (task, attempt, chunk, first, lines, size, digest, written_ms, checksum)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- name: read_log_chunks
-- Where the pieces of an attempt's log lie, in order.
select task, attempt, chunk, first, lines, size, digest, written_ms, checksum
  from log_chunks where task = ? and attempt = ? and chunk > ? order by chunk;

-- name: children_between
-- What is kept of children under these numbers.
select run, step, child, value, checksum from children where run between ? and ? order by run, step, child;

-- name: read_owner
-- Whether an epoch is the owner's, and up to where its rows are true.
select watermark from partitions where id = ? and epoch = ?;

-- name: put_archive
-- The object is there already.
insert into archives (object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms,
                      checksum)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing;

-- name: put_archived
-- The latest end of a run counts.
insert into archived (tenant, id, number, object, checksum) values (?, ?, ?, ?, ?)
on conflict (tenant, id) do update set
    number = excluded.number, object = excluded.object, checksum = excluded.checksum;

-- name: drop_attempts
-- Those of a run that is in the archive.
delete from attempts where run = ?;

-- name: drop_children
-- Those of a run that is in the archive.
delete from children where run >= ? and run < ?;

-- name: drop_journal
-- What is in the archive.
delete from journal where partition_id = ? and seq <= ?;

-- name: read_archived
-- Where a run is.
select tenant, id, number, object, checksum from archived where tenant = ? and id = ?;

-- name: read_journal_archive
-- The one that holds a row, if any does.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where partition_id = ? and kind = 'journal' and last >= ? order by last limit 1;

-- name: read_archives_over
-- Those of a kind that may hold a number, oldest first.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where partition_id = ? and kind = ? and first <= ? and last >= ? order by to_ms, object;

-- name: read_old_archives
-- Oldest first.
select object, kind, partition_id, first, last, rows, size, before, hash, tick, from_ms, to_ms, written_ms, checksum
  from archives where to_ms < ? order by to_ms, object limit ?;

-- name: drop_archived
-- The runs in an object that is gone.
delete from archived where object = ?;

-- name: drop_archive
-- It is gone.
delete from archives where object = ?;

-- name: log_chunks_after
-- Pieces of logs of a partition's tasks, in the order of their places.
select task, attempt, chunk, first, lines, size, digest, written_ms, checksum
  from log_chunks where (task, attempt, chunk) > (?, ?, ?) and task <= ? order by task, attempt, chunk limit ?;

-- name: read_named_log
-- Whether a piece that is not old names these bytes.
select 1 from log_chunks where digest = ? and written_ms >= ? limit 1;

-- name: drop_log_chunk
-- It is old.
delete from log_chunks where task = ? and attempt = ? and chunk = ?;

-- name: attempts_between
-- By run, oldest first.
select run, data, checksum from attempts where run between ? and ? order by run, place;

-- name: read_journal_cut
-- The seq behind which the journal begins: its first row is never the last that was taken away.
select coalesce(min(seq), 1) - 1 from journal where partition_id = ?;

-- name: renew_payload
-- It is needed today.
update payloads set day = unixepoch() / 86400, day_again = unixepoch() / 86400
 where digest = ? and day < unixepoch() / 86400;

-- name: has_payload
-- Whether it is here.
select 1 from payloads where digest = ?;

-- name: drop_payloads
-- Values of earlier days. What an archive or a log has for its object is looked after by those.
delete from payloads
 where digest in (
    select digest from payloads v
     where v.day between 1 and ? - 1 and v.day = v.day_again
       and not exists (select 1 from archives a where a.object = v.digest)
       and not exists (select 1 from log_chunks l where l.digest = v.digest)
     order by v.day limit ?);

-- name: read_named_object
-- Whether an archive or a log has it for its object.
select 1 from archives where object = ?1 union all select 1 from log_chunks where digest = ?1 limit 1;

-- name: note_renewal
-- Everything that the partition names.
insert into renewals (partition_id, day, checksum) values (?, unixepoch() / 86400, 0)
on conflict (partition_id) do update set day = excluded.day;

-- name: read_renewal
-- As it was noted.
select day from renewals where partition_id = ?;

-- name: sign_renewal
-- In the same transaction.
update renewals set checksum = ? where partition_id = ?;

-- name: read_renewals
-- The day of each partition, 0 where there was none; also one that is of no partition, which its checksum tells.
select coalesce(p.id, r.partition_id), coalesce(r.day, 0), coalesce(r.checksum, 0)
  from partitions p full join renewals r on r.partition_id = p.id order by 1;
