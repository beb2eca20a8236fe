-- Ended runs lie in blocks. What ended before cannot be packed by SQL: a backup, made by the program that wrote it, can be
-- restored by this one.

do $body$
begin
    if exists (select from runs) then
        raise exception 'runs ended under an older program: make a backup with that, and restore it with this one';
    end if;
end
$body$;
drop table runs;
drop function write_rows;

create table run_blocks (  -- those of a stretch of 256 numbers are neighbours
    first bigint primary key,
    held bytea not null,
    marks bytea not null,
    data bytea not null
);
alter table run_blocks alter column held set storage plain;
alter table run_blocks alter column marks set storage external;
alter table run_blocks alter column data set storage external;

create table run_hints (  -- in which stretches an id may be
    hint bigint not null,
    stretch bigint not null,
    primary key (hint, stretch)
);

create table run_keys (
    tenant text collate "C" not null,
    key text collate "C" not null,
    number bigint not null,
    primary key (tenant, key, number)
);

create table run_groups (  -- what runs there are in a stretch
    tenant text collate "C" not null,
    stretch bigint not null,
    state integer not null,
    workflow text collate "C" not null,
    schedule text collate "C" not null,
    primary key (tenant, stretch, state, workflow, schedule)
);
create index run_groups_by_state on run_groups (tenant, state, stretch);
create index run_groups_by_workflow on run_groups (tenant, workflow, stretch);
create index run_groups_by_schedule on run_groups (tenant, schedule, stretch) where schedule <> '';

-- Rows behind, in one round trip: the fence first, then what there is to write. 0: fenced, or not the next. 1: written.
-- 2: this very write (by `writes_before`) was made already, and nothing is changed.
create function write_rows(
    of_partition integer, of_epoch bigint, writes_before bigint, through bigint, through_hash bytea, new_header bytea,
    gone_runs bigint[], put_runs bigint[], put_runs_data bytea[],
    gone_tasks bigint[], put_tasks bigint[], put_tasks_data bytea[],
    gone_schedules bigint[], put_schedules bigint[], put_schedules_data bytea[],
    attempts_run bigint[], attempts_data bytea[]
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
    if cardinality(attempts_run) > 0 then
        insert into attempts (run, data) select * from unnest(attempts_run, attempts_data);
    end if;
    return 1;
end
$body$;

-- Ended runs; called in the same statement, or where some of them were taken away first.
create function put_runs(
    block_first bigint[], block_held bytea[], block_marks bytea[], block_data bytea[],
    hint bigint[], hint_stretch bigint[],
    group_tenant text[], group_stretch bigint[], group_state integer[], group_workflow text[], group_schedule text[],
    key_tenant text[], key_key text[], key_number bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    insert into run_blocks (first, held, marks, data)
    select * from unnest(block_first, block_held, block_marks, block_data);
    insert into run_hints (hint, stretch) select * from unnest(hint, hint_stretch) on conflict do nothing;
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
