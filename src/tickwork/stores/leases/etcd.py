"""Leases in etcd, over its JSON gateway: a key for each member and each held partition, with a lease of etcd's own.

A key is there as long as its lease lives, so no times are compared. etcd counts in whole seconds and has a least
time of its own (1.5 election time-outs): requested times are rounded up. What this object took and let run out
it takes again at the next renewal, if it is still free.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import HeldLease, Member

TIMEOUT_S = 2.0
RETRY_MS = 200
_encode = msgspec.json.Encoder().encode
_member = msgspec.json.Decoder(Member).decode
_holding = msgspec.json.Decoder(HeldLease).decode


class EtcdLeases:
    """`urls`: one or several members of one etcd, as http://host:2379, with commas between."""

    def __init__(self, urls: str, *, prefix: str = "tickwork") -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._prefix = prefix
        self._client: httpx2.AsyncClient | None = None
        self._beats: dict[str, tuple[int, int]] = {}  # etcd's lease and its seconds, by session
        self._held: dict[int, tuple[HeldLease, int, int]] = {}  # with etcd's lease and its seconds
        self._cluster = ""

    def of_cluster(self, cluster: str) -> None:
        self._cluster = f"/{cluster}"

    @property
    def _at(self) -> str:
        return self._prefix + self._cluster

    async def open(self) -> None:
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_S)
        await self._call("kv/range", {"key": _text(self._prefix)})

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # ---- members

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        seconds = _seconds(ttl_ms)
        lease, granted = self._beats.get(member.session, (0, 0))
        if not lease or granted != seconds or not await self._keep_alive(lease):
            lease = await self._grant(seconds)
            self._beats[member.session] = (lease, seconds)
        await self._call("kv/put", _put(self._member_key(member.session), _encode(member), lease))

    async def leave(self, session: str) -> None:
        self._beats.pop(session, None)
        await self._call("kv/deleterange", {"key": _text(self._member_key(session))})
        for holding in await self.holdings():
            if holding.session == session:
                await self.release(holding.partition, session)

    async def members(self) -> list[Member]:
        return [_member(value) for value, _ in await self._range(f"{self._at}/members/")]

    # ---- partitions

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        holding = HeldLease(partition, member.session, member.node, member.address)
        return await self._take(holding, _seconds(ttl_ms))

    async def _take(self, holding: HeldLease, seconds: int) -> bool:
        key, lease = self._lease_key(holding.partition), await self._grant(seconds)
        put = {"request_put": _put(key, _encode(holding), lease)}
        free = {"key": _text(key), "target": "CREATE", "create_revision": "0"}
        answer = await self._txn(free, put, {"request_range": {"key": _text(key)}})
        if not answer.get("succeeded"):
            entries = answer["responses"][0]["response_range"].get("kvs", [])
            if not entries or _holding(_bytes(entries[0]["value"])).session != holding.session:
                await self._revoke(lease)
                return False
            own = {"key": _text(key), "target": "MOD", "mod_revision": entries[0]["mod_revision"]}
            if not (await self._txn(own, put)).get("succeeded"):
                await self._revoke(lease)
                return False
        before = self._held.get(holding.partition)
        self._held[holding.partition] = (holding, lease, seconds)
        if before is not None:
            await self._revoke(before[1])  # the key hangs on the new one by now
        return True

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        seconds = _seconds(ttl_ms)
        still = await asyncio.gather(*(self._renew(partition, session, seconds) for partition in partitions))
        return frozenset(partition for partition, own in zip(partitions, still, strict=True) if own)

    async def _renew(self, partition: int, session: str, seconds: int) -> bool:
        holding, lease, granted = self._held.get(partition, (None, 0, 0))
        if holding is None or holding.session != session:
            entries = await self._range(self._lease_key(partition), single=True)
            holding = _holding(entries[0][0]) if entries else None
            if holding is None or holding.session != session:
                return False
        elif granted == seconds and await self._keep_alive(lease):
            return True
        if await self._take(holding, seconds):
            return True
        self._held.pop(partition, None)
        return False

    async def release(self, partition: int, session: str) -> None:
        key = self._lease_key(partition)
        held = self._held.get(partition)
        if held is not None and held[0].session == session:
            del self._held[partition]
        for value, revision in await self._range(key, single=True):
            if _holding(value).session == session:
                own = {"key": _text(key), "target": "MOD", "mod_revision": revision}
                await self._txn(own, {"request_delete_range": {"key": _text(key)}})

    async def holdings(self) -> list[HeldLease]:
        return [_holding(value) for value, _ in await self._range(f"{self._at}/leases/")]

    # ---- etcd

    def _member_key(self, session: str) -> str:
        return f"{self._at}/members/{session}"

    def _lease_key(self, partition: int) -> str:
        return f"{self._at}/leases/{partition:08d}"  # so that the order of keys is that of partitions

    async def _range(self, key: str, *, single: bool = False) -> list[tuple[bytes, str]]:
        """Return values with their revisions, ordered by key."""
        request = {"key": _text(key)} if single else {"key": _text(key), "range_end": _text(_after(key))}
        entries = (await self._call("kv/range", request)).get("kvs", [])
        return [(_bytes(entry["value"]), entry["mod_revision"]) for entry in entries]

    async def _txn(self, compare: Any, success: Any, failure: Any = None) -> Any:
        request = {"compare": [compare | {"result": "EQUAL"}], "success": [success]}
        return await self._call("kv/txn", request | ({"failure": [failure]} if failure else {}))

    async def _grant(self, seconds: int) -> int:
        return int((await self._call("lease/grant", {"TTL": seconds}))["ID"])

    async def _keep_alive(self, lease: int) -> bool:
        return int((await self._call("lease/keepalive", {"ID": lease}))["result"].get("TTL", 0)) > 0

    async def _revoke(self, lease: int) -> None:
        await self._call("lease/revoke", {"ID": lease}, absent_allowed=True)

    async def _call(self, name: str, request: Any, *, absent_allowed: bool = False) -> Any:
        if self._client is None:
            raise Unavailable("the leases are closed", retry_after_ms=RETRY_MS)
        trouble = "no address"
        for url in self._urls:
            try:
                answer = await self._client.post(f"{url}/v3/{name}", json=request)
            except (httpx2.HTTPError, OSError) as error:
                trouble = f"{type(error).__name__} {error}".strip()
                continue
            if answer.status_code == 200:
                if url is not self._urls[0]:  # the server that answered is tried first from now on
                    self._urls = [url, *(other for other in self._urls if other is not url)]
                return answer.json()
            if absent_allowed and answer.status_code == 404:
                return {}
            trouble = f"{answer.status_code} {answer.text[:200]}"
        raise Unavailable(f"the leases in etcd cannot be reached ({trouble})", retry_after_ms=RETRY_MS)


def _seconds(ttl_ms: int) -> int:
    return max(1, -(-ttl_ms // 1000))


def _put(key: str, value: bytes, lease: int) -> dict[str, Any]:
    return {"key": _text(key), "value": base64.b64encode(value).decode(), "lease": lease}


def _text(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _after(prefix: str) -> str:
    """The first key behind all that begin like this."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
