"""Nodes as settings make them, over a real PostgreSQL: auditors, lease backends, what is told at the start."""

import asyncio
import contextlib
import time

import asyncpg
import httpx2
import pytest

from servers import etcd, postgres, postgres_server, schema, valkey  # noqa: F401 - fixtures
from tickwork.compose.cluster import serving_node
from tickwork.compose.settings import BadSettings, Settings

DOCUMENT = {"name": "flow", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]}
TOKEN = "for-this-test-only"
# From now on the database changes a byte of each row of the journal on its way to the disk.
DAMAGE = """
create function {0}.damage() returns trigger language plpgsql as
$$ begin new.data := set_byte(new.data, 3, get_byte(new.data, 3) # 255); return new; end $$;
create trigger damage before insert on {0}.journal for each row execute function {0}.damage();
"""


@pytest.fixture
def settings(tmp_path, postgres, schema):  # noqa: F811
    def made(**more):
        data = str(tmp_path / "left" / "here")
        address = f"{postgres}?schema={schema}"
        return Settings(store=address, port=0, token=TOKEN, lease_ttl="3s", data=data, partitions=2, **more)

    made.postgres, made.schema = postgres, schema
    return made


@contextlib.asynccontextmanager
async def nodes(*wanted):
    async with contextlib.AsyncExitStack() as stack:
        headers = {"authorization": f"Bearer {TOKEN}"}
        client = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20))
        alarms = []
        made = [await stack.enter_async_context(serving_node(one, on_alarm=alarms.append)) for one in wanted]
        yield client, [server.address for _, server in made], alarms


async def until(true, *, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not await true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


def audited(text):
    """Rows that were found equal, by partition."""
    lines = [line.split() for line in text.splitlines() if line.startswith("tickwork_audit_rows_total{")]
    return {name.partition('partition="')[2][:1]: float(count) for name, count in lines}


@pytest.mark.proves("I8", "I13", "F14")
@pytest.mark.parametrize("standby", [True, False], ids=["standby", "owner"])
async def test_a_damaged_row_of_the_journal_stops_dispatch_of_its_partition(settings, standby, tmp_path):
    wanted = [settings(node_name="a", audit=not standby)]
    if standby:
        wanted.append(settings(node_name="b", audit=True, role="api"))
    async with nodes(*wanted) as (client, addresses, alarms):
        url, judge = addresses[0], addresses[-1]
        assert (await client.put(f"{url}/v1/workflows", json={"documents": [DOCUMENT]})).status_code < 300

        async def both_are_followed():
            return len(audited((await client.get(f"{judge}/metrics")).text)) == 2

        async def is_held():
            return "dispatch_held" in (await client.get(f"{url}/v1/partitions/{home}")).json()

        await until(both_are_followed)
        home = (await client.get(f"{url}/v1/cluster")).json()["routes"][0]["home"]
        assert (await client.post(f"{url}/v1/runs", json={"workflow": "flow"})).status_code < 300
        assert not await is_held()
        connection = await asyncpg.connect(settings.postgres)
        await connection.execute(DAMAGE.format(settings.schema))
        await connection.close()
        assert (await client.post(f"{url}/v1/runs", json={"workflow": "flow"})).status_code < 300
        await until(is_held)

        kinds = [alarm.kind for alarm in alarms]
        assert "audit_difference" in kinds and "audit_not_held" not in kinds
        differs = f'tickwork_audit_differs{{partition="{home}"}} 1.0'
        assert differs in (await client.get(f"{judge}/metrics")).text
        left = await asyncio.to_thread(lambda: sorted(path.name for path in (tmp_path / "left" / "here").iterdir()))
        assert [name for name in left if name.startswith(f"audit-p{home}-")]


async def test_a_setting_that_is_wrong_is_refused_before_a_node_starts(settings):
    with pytest.raises(BadSettings, match="catch_up"):
        async with serving_node(settings(catch_up="sometimes")):
            pass


@pytest.mark.proves("P5")
async def test_whoever_holds_an_old_snapshot_is_seen_among_the_metrics(settings):
    async with nodes(settings()) as (client, [url], _):
        connection = await asyncpg.connect(settings.postgres)
        await connection.execute("begin isolation level repeatable read")
        await connection.execute("select 1")

        async def age_s():
            text = (await client.get(f"{url}/metrics")).text
            return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("tickwork_horizon_age"))

        async def is_old():
            return await age_s() > 0.3

        try:
            await until(is_old)
        finally:
            await connection.close()


async def test_a_risk_of_the_database_is_told_at_the_start(settings):
    async with nodes(settings()) as (_, _, alarms):
        assert [alarm.text for alarm in alarms if alarm.kind == "store_risk"] == [
            "fsync is off: a crash of the machine can lose or damage acknowledged data"
        ]


@pytest.mark.proves("F21", "F24")
@pytest.mark.parametrize("backend", ["valkey", "etcd"])
async def test_clusters_that_share_a_place_for_leases_do_not_meet(settings, backend, request):
    """As a store and its restored copy do: a node of the one would pass requests on to the other."""
    address = request.getfixturevalue(backend).replace("http://", "etcd://")
    first = settings(node_name="a", leases=address)
    second = Settings(**(vars_of(first) | {"node_name": "b", "store": f"{first.store}_copy"}))
    async with nodes(first, second) as (client, urls, alarms):
        for url, name in zip(urls, ("a", "b"), strict=True):
            shown = (await client.get(f"{url}/v1/cluster")).json()
            assert [one["node"] for one in shown["nodes"]] == [name]
            assert [one.get("node") for one in shown["partitions"]] == [name, name]
        assert "leases_fell_back" not in [alarm.kind for alarm in alarms]


def vars_of(settings):
    return {name: getattr(settings, name) for name in settings.__struct_fields__}
