-- What several nodes share, and rows in one round trip.

create table founded (  -- one row, for good
    one boolean primary key default true check (one),
    cluster text collate "C" not null,
    partitions integer not null
);

create table routes (
    tenant text collate "C" primary key,
    home integer not null,
    spread integer not null
);

create table inbox (  -- no sequence numbers: those become visible out of order, and a reader would skip rows
    partition_id integer not null,
    id text collate "C" not null,
    tenant text collate "C" not null,
    data bytea not null,
    by text collate "C" not null,
    primary key (partition_id, id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);

create table members (  -- nodes that live; times are the server's
    session text collate "C" primary key,
    node text collate "C" not null,
    address text collate "C" not null,
    data bytea not null,
    until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table leases (  -- who tries; who wins is for `partitions` to say
    partition_id integer primary key,
    session text collate "C" not null,
    node text collate "C" not null,
    address text collate "C" not null,
    until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Rows behind, in one round trip: the fence first, then what there is to write.
-- False: fenced, or not the next. A repeated write (`writes_before` is used already) changes nothing and is true.
create function write_rows(
    of_partition integer, of_epoch bigint, writes_before bigint, through bigint, through_hash bytea, new_header bytea,
    gone_runs bigint[], put_runs bigint[], put_runs_data bytea[],
    gone_tasks bigint[], put_tasks bigint[], put_tasks_data bytea[],
    gone_schedules bigint[], put_schedules bigint[], put_schedules_data bytea[],
    reopened bigint[],
    run_number bigint[], run_id text[], run_tenant text[], run_workflow text[], run_definition text[], run_state integer[],
    run_source text[], run_by text[], run_submitted_ms bigint[], run_started_ms bigint[], run_ended_ms bigint[],
    run_key text[], run_error text[], run_schedule text[], run_record bytea[], run_output bytea[], run_attempts bytea[],
    attempts_run bigint[], attempts_data bytea[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    perform set_config('synchronous_commit', 'off', true);
    update watermarks set watermark = through, hash = through_hash, writes = writes_before + 1
     where partition_id = of_partition and epoch = of_epoch and writes = writes_before and watermark <= through
       and (exists (select from journal j where j.partition_id = of_partition and j.seq = through)
            or exists (select from partitions p where p.id = of_partition and p.seq >= through));
    if not found then
        return exists (select from watermarks w
                        where w.partition_id = of_partition and w.epoch = of_epoch and w.writes = writes_before + 1);
    end if;
    if length(new_header) > 0 then
        update machines set header = new_header where partition_id = of_partition;
    end if;
    if cardinality(gone_runs) > 0 then
        delete from live_runs where number = any(gone_runs);
    end if;
    if cardinality(put_runs) > 0 then
        insert into live_runs (number, data) select * from unnest(put_runs, put_runs_data)
        on conflict (number) do update set data = excluded.data;
    end if;
    if cardinality(gone_tasks) > 0 then
        delete from live_tasks where number = any(gone_tasks);
    end if;
    if cardinality(put_tasks) > 0 then
        insert into live_tasks (number, data) select * from unnest(put_tasks, put_tasks_data)
        on conflict (number) do update set data = excluded.data;
    end if;
    if cardinality(gone_schedules) > 0 then
        delete from schedules where number = any(gone_schedules);
    end if;
    if cardinality(put_schedules) > 0 then
        insert into schedules (number, data) select * from unnest(put_schedules, put_schedules_data)
        on conflict (number) do update set data = excluded.data;
    end if;
    if cardinality(reopened) > 0 then
        insert into attempts (run, data)
        select number, attempts from runs where number = any(reopened) and length(attempts) > 0;
        delete from runs where number = any(reopened);
    end if;
    if cardinality(run_number) > 0 then
        insert into runs (number, id, tenant, workflow, definition, state, source, by, submitted_ms, started_ms,
                          ended_ms, key, error, schedule, record, output, attempts)
        select * from unnest(run_number, run_id, run_tenant, run_workflow, run_definition, run_state, run_source, run_by,
                             run_submitted_ms, run_started_ms, run_ended_ms, run_key, run_error, run_schedule,
                             run_record, run_output, run_attempts)
        on conflict (number) do update set
            id = excluded.id, tenant = excluded.tenant, workflow = excluded.workflow,
            definition = excluded.definition, state = excluded.state, source = excluded.source, by = excluded.by,
            submitted_ms = excluded.submitted_ms, started_ms = excluded.started_ms, ended_ms = excluded.ended_ms,
            key = excluded.key, error = excluded.error, schedule = excluded.schedule, record = excluded.record,
            output = excluded.output, attempts = excluded.attempts;
    end if;
    if cardinality(attempts_run) > 0 then
        insert into attempts (run, data) select * from unnest(attempts_run, attempts_data);
    end if;
    return true;
end
$body$;

-- What most writes of rows have none of; called in the same statement.
create function write_rest(
    of_partition integer,
    fate_tenant text[], fate_schedule text[], fate_from_ms bigint[], fate_number bigint[], fate_backfill bigint[],
    fate_to_ms bigint[], fate_data bytea[],
    backfill_number bigint[], backfill_tenant text[], backfill_schedule text[], backfill_data bytea[],
    definition_hash text[], definition_tenant text[], definition_name text[], definition_document bytea[],
    definition_put_ms bigint[],
    child_run bigint[], child_step integer[], child_number bigint[], child_value bytea[],
    cache_key text[], cache_value bytea[], cache_kept_ms bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    if cardinality(fate_number) > 0 then
        insert into fates (tenant, schedule, from_ms, number, backfill, to_ms, data)
        select * from unnest(fate_tenant, fate_schedule, fate_from_ms, fate_number, fate_backfill, fate_to_ms, fate_data)
        on conflict (tenant, schedule, from_ms, number, backfill) do update set
            to_ms = excluded.to_ms, data = excluded.data;
    end if;
    if cardinality(backfill_number) > 0 then
        insert into backfills (number, tenant, schedule, data)
        select * from unnest(backfill_number, backfill_tenant, backfill_schedule, backfill_data)
        on conflict (number) do update set data = excluded.data;
    end if;
    if cardinality(definition_hash) > 0 then
        insert into definitions (hash, tenant, name, document, put_ms, partition_id)
        select *, of_partition from unnest(definition_hash, definition_tenant, definition_name, definition_document,
                                           definition_put_ms)
        on conflict (tenant, hash, partition_id) do update set
            name = excluded.name, document = excluded.document, put_ms = excluded.put_ms;
    end if;
    if cardinality(child_run) > 0 then
        insert into children (run, step, child, value)
        select * from unnest(child_run, child_step, child_number, child_value)
        on conflict (run, step, child) do update set value = excluded.value;
    end if;
    if cardinality(cache_key) > 0 then
        insert into cache (key, value, kept_ms) select * from unnest(cache_key, cache_value, cache_kept_ms)
        on conflict (key) do update set value = excluded.value, kept_ms = excluded.kept_ms;
    end if;
    return true;
end
$body$;
