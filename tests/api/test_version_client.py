"""Both clients ask the real server about the versions of applications."""

import pytest
from httpx2 import AsyncClient as Http

from api.scripted_worker import flow, task
from api.test_schedule_client import Both
from api.test_server import server  # noqa: F401 - a fixture
from tickwork.core.base.errors import Refused
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client


@pytest.fixture(params=[Client, AsyncClient])
async def ask(server, request):  # noqa: F811
    async with Http(base_url=server.address) as http:
        for application, version in (("shop", "v1"), ("mart", "v1"), ("shop", "v2")):
            document = flow(application, task(f"{application}-{version}"))
            wanted = {"documents": [document], "application": application, "version": version}
            assert (await http.put("/v1/workflows", json=wanted)).status_code == 200
    both = Both(server.address, request.param)
    yield both
    await both("close")


@pytest.mark.proves("S004-55", "S004-56", "S004-57")
async def test_versions_are_those_of_the_application_that_was_asked_for(ask):
    everyone = await ask("list_application_versions")
    shops = await ask("list_application_versions", "shop")

    assert [(one.application, one.version_name) for one in everyone] == [("shop", "v2"), ("mart", "v1"), ("shop", "v1")]
    assert [(one.application, one.version_name) for one in shops] == [("shop", "v2"), ("shop", "v1")]
    assert (await ask("latest_application_version", "mart")).application == "mart"
    assert (await ask("set_latest_application_version", "v1", application="shop")).version_name == "v1"
    assert (await ask("latest_application_version", "shop")).version_name == "v1"
    with pytest.raises(Refused, match="name the application: mart, shop"):
        await ask("latest_application_version")
    with pytest.raises(Refused, match="there is no application 'nobody'"):
        await ask("list_application_versions", "nobody")
