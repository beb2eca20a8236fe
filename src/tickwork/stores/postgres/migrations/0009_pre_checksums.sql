-- Every row has a checksum, over its key too. What is there gets it from the program. A node of the version before cannot write
-- rows any more: what it commits is in the journal, and whoever takes its partitions over writes them.

alter table founded add column checksum bigint not null default 0;
alter table routes add column checksum bigint not null default 0;
alter table inbox add column checksum bigint not null default 0;
alter table partitions add column checksum bigint not null default 0;
alter table renewals add column checksum bigint not null default 0;
alter table live_runs add column checksum bigint not null default 0;
alter table live_tasks add column checksum bigint not null default 0;
alter table schedules add column checksum bigint not null default 0;
alter table definitions add column checksum bigint not null default 0;
alter table attempts add column checksum bigint not null default 0;
alter table children add column checksum bigint not null default 0;
alter table cache add column checksum bigint not null default 0;
alter table log_chunks add column checksum bigint not null default 0;
alter table fates add column checksum bigint not null default 0;
alter table backfills add column checksum bigint not null default 0;
alter table archives add column checksum bigint not null default 0;
alter table archived add column checksum bigint not null default 0;
alter table machines add column settings_checksum bigint not null default 0;
alter table machines add column header_checksum bigint not null default 0;
alter table run_blocks add column outline_checksum bigint not null default 0;
alter table run_blocks add column checksum bigint not null default 0;
drop function write_rows;
drop function put_runs;
drop function write_rest;

-- Rows behind, in one round trip: the fence first, then what there is to write. 0: fenced, or not the next. 1: written.
-- 2: this very write (by `writes_before`) was made already, and nothing is changed.
create function write_rows(
    of_partition integer, of_epoch bigint, writes_before bigint, through bigint, through_hash bytea, new_header bytea,
    new_header_checksum bigint,
    gone_runs bigint[], put_runs bigint[], put_runs_data bytea[], put_runs_checksum bigint[],
    gone_tasks bigint[], put_tasks bigint[], put_tasks_data bytea[], put_tasks_checksum bigint[],
    gone_schedules bigint[], put_schedules bigint[], put_schedules_data bytea[], put_schedules_checksum bigint[],
    attempts_run bigint[], attempts_data bytea[], attempts_checksum bigint[]
) returns integer language plpgsql as $body$
#variable_conflict use_column
begin
    perform set_config('synchronous_commit', 'off', true);
    update watermarks set watermark = through, hash = through_hash, writes = writes_before + 1
     where partition_id = of_partition and epoch = of_epoch and writes = writes_before and watermark <= through
       and (exists (select from journal j where j.partition_id = of_partition and j.seq = through)
            or exists (select from partitions p where p.id = of_partition and p.seq >= through));
    if not found then
        return 2 * (select count(*) from watermarks w
                     where w.partition_id = of_partition and w.epoch = of_epoch and w.writes = writes_before + 1);
    end if;
    if length(new_header) > 0 then
        update machines set header = new_header, header_checksum = new_header_checksum
         where partition_id = of_partition;
    end if;
    if cardinality(gone_runs) > 0 then
        delete from live_runs where number = any(gone_runs);
    end if;
    if cardinality(put_runs) > 0 then
        insert into live_runs (number, data, checksum)
        select * from unnest(put_runs, put_runs_data, put_runs_checksum)
        on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(gone_tasks) > 0 then
        delete from live_tasks where number = any(gone_tasks);
    end if;
    if cardinality(put_tasks) > 0 then
        insert into live_tasks (number, data, checksum)
        select * from unnest(put_tasks, put_tasks_data, put_tasks_checksum)
        on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(gone_schedules) > 0 then
        delete from schedules where number = any(gone_schedules);
    end if;
    if cardinality(put_schedules) > 0 then
        insert into schedules (number, data, checksum)
        select * from unnest(put_schedules, put_schedules_data, put_schedules_checksum)
        on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(attempts_run) > 0 then
        insert into attempts (run, data, checksum)
        select * from unnest(attempts_run, attempts_data, attempts_checksum);
    end if;
    return 1;
end
$body$;

-- Ended runs; called in the same statement, or where some of them were taken away first.
create function put_runs(
    block_first bigint[], block_held bytea[], block_marks bytea[], block_data bytea[],
    block_outline_checksum bigint[], block_checksum bigint[],
    clue bigint[], clue_stretch bigint[],
    group_tenant text[], group_stretch bigint[], group_state integer[], group_workflow text[], group_schedule text[],
    key_tenant text[], key_key text[], key_number bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    insert into run_blocks (first, held, marks, data, outline_checksum, checksum)
    select * from unnest(block_first, block_held, block_marks, block_data, block_outline_checksum, block_checksum);
    insert into run_clues (clue, stretch) select * from unnest(clue, clue_stretch) on conflict do nothing;
    insert into run_groups (tenant, stretch, state, workflow, schedule)
    select * from unnest(group_tenant, group_stretch, group_state, group_workflow, group_schedule)
    on conflict do nothing;
    if cardinality(key_number) > 0 then
        insert into run_keys (tenant, key, number) select * from unnest(key_tenant, key_key, key_number)
        on conflict do nothing;
    end if;
    return true;
end
$body$;

-- What most writes of rows have none of; called in the same statement.
create function write_rest(
    of_partition integer,
    fate_tenant text[], fate_schedule text[], fate_from_ms bigint[], fate_number bigint[], fate_backfill bigint[],
    fate_to_ms bigint[], fate_data bytea[], fate_checksum bigint[],
    backfill_number bigint[], backfill_tenant text[], backfill_schedule text[], backfill_data bytea[],
    backfill_checksum bigint[],
    definition_hash text[], definition_tenant text[], definition_name text[], definition_document bytea[],
    definition_put_ms bigint[], definition_checksum bigint[],
    child_run bigint[], child_step integer[], child_number bigint[], child_value bytea[], child_checksum bigint[],
    cache_key text[], cache_value bytea[], cache_kept_ms bigint[], cache_checksum bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    if cardinality(fate_number) > 0 then
        insert into fates (tenant, schedule, from_ms, number, backfill, to_ms, data, checksum)
        select * from unnest(fate_tenant, fate_schedule, fate_from_ms, fate_number, fate_backfill, fate_to_ms, fate_data,
                             fate_checksum)
        on conflict (tenant, schedule, from_ms, number, backfill) do update set
            to_ms = excluded.to_ms, data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(backfill_number) > 0 then
        insert into backfills (number, tenant, schedule, data, checksum)
        select * from unnest(backfill_number, backfill_tenant, backfill_schedule, backfill_data, backfill_checksum)
        on conflict (number) do update set
            tenant = excluded.tenant, schedule = excluded.schedule, data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(definition_hash) > 0 then
        insert into definitions (hash, tenant, name, document, put_ms, checksum, partition_id)
        select *, of_partition from unnest(definition_hash, definition_tenant, definition_name, definition_document,
                                           definition_put_ms, definition_checksum)
        on conflict (tenant, hash, partition_id) do update set
            name = excluded.name, document = excluded.document, put_ms = excluded.put_ms, checksum = excluded.checksum;
    end if;
    if cardinality(child_run) > 0 then
        insert into children (run, step, child, value, checksum)
        select * from unnest(child_run, child_step, child_number, child_value, child_checksum)
        on conflict (run, step, child) do update set value = excluded.value, checksum = excluded.checksum;
    end if;
    if cardinality(cache_key) > 0 then
        insert into cache (key, value, kept_ms, checksum)
        select * from unnest(cache_key, cache_value, cache_kept_ms, cache_checksum)
        on conflict (key) do update set
            value = excluded.value, kept_ms = excluded.kept_ms, checksum = excluded.checksum;
    end if;
    return true;
end
$body$;
