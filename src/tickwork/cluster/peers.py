"""Other nodes over HTTP: the exchange by the lean way that workers use, everything else by the public API."""

from urllib.parse import quote

import msgspec

from tickwork.core.errors import Refused, Unavailable
from tickwork.ports.exchange import Call, Reply, encoder, reply_decoder
from tickwork.ports.wire import Problem
from tickwork.worker.http1 import Poster

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
ANSWER_S = 10.0  # beyond what the owner may wait for work
RETRY_MS = 50


class HttpPeers:
    def __init__(self, *, token: str = "") -> None:
        self._headers = MSGPACK | ({"authorization": f"Bearer {token}"} if token else {})
        self._posters: dict[str, Poster] = {}

    async def exchange(self, address: str, partition: int, call: Call) -> Reply:
        path = f"/v1/workers/{quote(call.worker, safe='')}/exchange?partition={partition}"
        data = await self._post(address, path, encoder.encode(call), ANSWER_S + call.wait_ms / 1000)
        try:
            return reply_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the reply of {address} cannot be read: {error}", retry_after_ms=RETRY_MS) from error

    async def announce(self, address: str, partition: int) -> None:
        await self._post(address, f"/v1/cluster/announce?partition={partition}", b"", ANSWER_S)

    async def give(self, address: str, partition: int) -> None:
        await self._post(address, f"/v1/cluster/give?partition={partition}", b"", ANSWER_S)

    async def _post(self, address: str, path: str, data: bytes, timeout_s: float) -> bytes:
        poster = self._posters.get(address)
        if poster is None:
            poster = self._posters[address] = Poster(address, headers=self._headers)
        try:
            status, answer = await poster.post(path, data, timeout_s=timeout_s)
        except (OSError, TimeoutError) as error:
            message = f"the node at {address} cannot be reached: {error or type(error).__name__}"
            raise Unavailable(message, retry_after_ms=RETRY_MS) from error
        if status < 400:
            return answer
        try:
            problem = msgspec.json.decode(answer, type=Problem)
        except msgspec.DecodeError:
            raise Unavailable(f"the node at {address} answered {status}", retry_after_ms=RETRY_MS) from None
        if status >= 500 or status in (408, 425, 429):
            raise Unavailable(problem.detail or problem.title, retry_after_ms=RETRY_MS)
        raise Refused(problem.code, problem.detail or problem.title)

    async def close(self) -> None:
        for poster in self._posters.values():
            poster.close()
        self._posters.clear()
