-- Runs that are enqueued in a transaction of the application, by SQL.

-- Accept a run in the caller's own transaction: it is there when that commits, or never was. The next owner of the
-- partition takes it from the inbox. Whoever may call this needs no right on any table.
create function enqueue(
    workflow text,
    inputs jsonb default '{}',
    key text default '',  -- the same key gives the same run for 24 h
    delay interval default null,
    start_at timestamptz default null,
    priority integer default null,
    options jsonb default '{}'  -- further fields of a submission, as POST /v1/runs takes them: queue, timeout_ms, retry …
) returns text language plpgsql security definer as $body$
#variable_conflict use_column
declare
    of_tenant constant text := 'default';
    partition_count integer;
    home_partition integer;
    spread_over integer;
    -- An id of version 7. Its time is that of the transaction, which is no later than the snapshot by which the place is
    -- chosen; then come microseconds since, so that ids are in order.
    began_ms constant bigint := floor(extract(epoch from now()) * 1000);
    since_us constant text := lpad(to_hex(least(16777215, greatest(0,
        (extract(epoch from clock_timestamp()) * 1000000)::bigint - began_ms * 1000))), 6, '0');
    hex constant text := lpad(to_hex(began_ms), 12, '0') || '7' || left(since_us, 3) || '8' || right(since_us, 3);
    run_id constant text := left(hex, 8) || '-' || substr(hex, 9, 4) || '-' || substr(hex, 13, 4) || '-'
        || substr(hex, 17, 4) || right(gen_random_uuid()::text, 13);
    starts timestamptz := coalesce(enqueue.start_at, clock_timestamp() + enqueue.delay);
    reserved text;
    document text;
begin
    if coalesce(enqueue.workflow, '') = '' or length(enqueue.workflow) > 128 then
        raise exception 'tickwork.enqueue: workflow is a name of 1 to 128 characters' using errcode = '22023';
    elsif jsonb_typeof(enqueue.inputs) is distinct from 'object' then
        raise exception 'tickwork.enqueue: inputs are an object, as {"order": 7}' using errcode = '22023';
    elsif jsonb_typeof(enqueue.options) is distinct from 'object' then
        raise exception 'tickwork.enqueue: options are an object, as {"queue": "mail"}' using errcode = '22023';
    elsif length(enqueue.key) > 255 then
        raise exception 'tickwork.enqueue: key has at most 255 characters' using errcode = '22023';
    elsif enqueue.delay is not null and enqueue.start_at is not null then
        raise exception 'tickwork.enqueue: give delay or start_at, not both' using errcode = '22023';
    elsif enqueue.delay < interval '0' or not isfinite(starts) then
        raise exception 'tickwork.enqueue: delay and start_at name a time to come' using errcode = '22023';
    elsif enqueue.priority not between 0 and 9 then
        raise exception 'tickwork.enqueue: priority is 0 to 9' using errcode = '22023';
    end if;
    reserved := (select name from jsonb_object_keys(enqueue.options) as name
                  where name in ('workflow', 'inputs', 'id', 'key', 'start_at', 'delay_ms', 'priority') limit 1);
    if reserved is not null then
        raise exception 'tickwork.enqueue: % is not given in options', reserved
            using errcode = '22023', hint = 'use the argument of the function; ids are made by it';
    elsif enqueue.options ?| array['debounce', 'at_most_ms'] then
        raise exception 'tickwork.enqueue: debounce needs the answer of the server'
            using errcode = '22023', hint = 'submit the run through the API after the commit';
    end if;
    document := jsonb_build_object('workflow', enqueue.workflow, 'inputs', enqueue.inputs, 'id', run_id)
        || enqueue.options
        || case when coalesce(enqueue.key, '') <> '' then jsonb_build_object('key', enqueue.key) else '{}' end
        || case when enqueue.priority is not null then jsonb_build_object('priority', enqueue.priority) else '{}' end
        || case when starts is not null then jsonb_build_object('start_at',
               to_char(starts at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) else '{}' end;
    if octet_length(document) > 1048576 then
        raise exception 'tickwork.enqueue: a run has at most 1 MiB' using errcode = '54000',
            hint = 'put the data where tasks can read it, and enqueue its name';
    end if;
    select f.partitions into partition_count from founded f;
    if partition_count is null then
        raise exception 'tickwork.enqueue: no node has used this store yet' using errcode = '55000',
            hint = 'start one: tickwork server --store postgresql://…';
    end if;
    -- Where a tenant has no route it lives at home alone: stable_hash('home', 'default').
    select r.home, r.spread into home_partition, spread_over from routes r where r.tenant = of_tenant;
    home_partition := coalesce(home_partition, mod(8461233960386909195, partition_count));
    if coalesce(enqueue.key, '') = '' then
        home_partition := mod(home_partition + mod(('x' || right(run_id, 4))::bit(16)::integer,
            least(greatest(coalesce(spread_over, 1), 1), partition_count)), partition_count);
    end if;
    insert into inbox (partition_id, id, tenant, data, by)
    values (home_partition, run_id, of_tenant, convert_to(document, 'UTF8'), 'sql:' || session_user);
    -- It only wakes the nodes that listen: they read the inbox every second anyway. One transaction at a time does so,
    -- because a commit with a notification waits for all others of that kind.
    if pg_try_advisory_xact_lock(x'7469636c'::integer, hashtext(current_schema())) then
        perform pg_notify('tickwork_inbox', current_schema());
    end if;
    return run_id;
end
$body$;

-- Only the schema's owner may call it until it grants the right. Names lead nowhere else, whatever the caller's path.
do $body$
begin
    execute format('alter function enqueue(text, jsonb, text, interval, timestamptz, integer, jsonb)'
                   ' set search_path = %I, pg_catalog, pg_temp', current_schema());
    revoke execute on function enqueue(text, jsonb, text, interval, timestamptz, integer, jsonb) from public;
end
$body$;
