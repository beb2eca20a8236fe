"""Leases in Redis or Valkey: three hashes, changed by scripts that read the server's clock.

A script runs whole or not at all and nothing runs beside it, so each of these is one step. The hashes share a slot, so
that a Redis cluster can hold them. A server that forgets everything costs time and nothing else. Needs the extra
`redis`.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, cast

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import HeldLease, Member
from tickwork.ports.store import StoreUnusable

TIMEOUT_S = 2.0
RETRY_MS = 200
# KEYS: members, leases, ends (when each of both runs out, in ms of the server's clock)
_NOW = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
_SCRIPTS = {
    "beat": """
        for _, session in ipairs(redis.call('HKEYS', KEYS[1])) do
            if tonumber(redis.call('HGET', KEYS[3], 'm' .. session) or '0') <= now then
                redis.call('HDEL', KEYS[1], session); redis.call('HDEL', KEYS[3], 'm' .. session)
            end
        end
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        redis.call('HSET', KEYS[3], 'm' .. ARGV[1], string.format('%d', now + ARGV[3]))
        return 1
    """,
    "leave": """
        redis.call('HDEL', KEYS[1], ARGV[1]); redis.call('HDEL', KEYS[3], 'm' .. ARGV[1])
        for _, place in ipairs(redis.call('HKEYS', KEYS[2])) do
            if cjson.decode(redis.call('HGET', KEYS[2], place))['session'] == ARGV[1] then
                redis.call('HDEL', KEYS[2], place); redis.call('HDEL', KEYS[3], 'p' .. place)
            end
        end
        return 1
    """,
    "members": """
        local found = {}
        for _, session in ipairs(redis.call('HKEYS', KEYS[1])) do
            if tonumber(redis.call('HGET', KEYS[3], 'm' .. session) or '0') > now then
                found[#found + 1] = redis.call('HGET', KEYS[1], session)
            end
        end
        return found
    """,
    "take": """
        local held = redis.call('HGET', KEYS[2], ARGV[1])
        if held and cjson.decode(held)['session'] ~= ARGV[2]
                and tonumber(redis.call('HGET', KEYS[3], 'p' .. ARGV[1]) or '0') > now then
            return 0
        end
        redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
        redis.call('HSET', KEYS[3], 'p' .. ARGV[1], string.format('%d', now + ARGV[4]))
        return 1
    """,
    "renew": """
        local mine = {}
        for place = 3, #ARGV do
            local held = redis.call('HGET', KEYS[2], ARGV[place])
            if held and cjson.decode(held)['session'] == ARGV[1] then
                redis.call('HSET', KEYS[3], 'p' .. ARGV[place], string.format('%d', now + ARGV[2]))
                mine[#mine + 1] = tonumber(ARGV[place])
            end
        end
        return mine
    """,
    "release": """
        local held = redis.call('HGET', KEYS[2], ARGV[1])
        if held and cjson.decode(held)['session'] == ARGV[2] then
            redis.call('HDEL', KEYS[2], ARGV[1]); redis.call('HDEL', KEYS[3], 'p' .. ARGV[1])
        end
        return 1
    """,
    "holdings": """
        local found = {}
        for _, place in ipairs(redis.call('HKEYS', KEYS[2])) do
            if tonumber(redis.call('HGET', KEYS[3], 'p' .. place) or '0') > now then
                found[#found + 1] = redis.call('HGET', KEYS[2], place)
            end
        end
        return found
    """,
}
_encode = msgspec.json.Encoder().encode
_member = msgspec.json.Decoder(Member).decode
_holding = msgspec.json.Decoder(HeldLease).decode


def _keys(prefix: str) -> list[str]:
    return [f"{{{prefix}}}:{name}" for name in ("members", "leases", "ends")]


class RedisLeases:
    """`url` as redis://host:port/0 (rediss:// with TLS)."""

    def __init__(self, url: str, *, prefix: str = "tickwork") -> None:
        self._url = url
        self._prefix = prefix
        self._keys = _keys(prefix)
        self._client: Any = None
        self._scripts: dict[str, Any] = {}

    def of_cluster(self, cluster: str) -> None:
        self._keys = _keys(f"{self._prefix}:{cluster}")

    async def open(self) -> None:
        try:
            import redis.asyncio as library
        except ImportError:
            raise StoreUnusable(
                "leases in Redis need a library that is not installed: pip install 'tickwork[redis]'"
            ) from None
        self._client = library.from_url(self._url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        self._scripts = {name: self._client.register_script(_NOW + text) for name, text in _SCRIPTS.items()}
        await self._run("members")  # says at once where it cannot be reached

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _run(self, name: str, *args: str | int | bytes) -> Any:
        if self._client is None:
            raise Unavailable("the leases are closed", retry_after_ms=RETRY_MS)
        from redis.exceptions import RedisError

        try:
            return await cast("Awaitable[Any]", self._scripts[name](keys=self._keys, args=args))
        except (RedisError, OSError, TimeoutError) as error:
            raise Unavailable(f"the leases in Redis cannot be reached ({error})", retry_after_ms=RETRY_MS) from error

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        await self._run("beat", member.session, _encode(member), ttl_ms)

    async def leave(self, session: str) -> None:
        await self._run("leave", session)

    async def members(self) -> list[Member]:
        return sorted(map(_member, await self._run("members")), key=lambda member: member.session)

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        holding = HeldLease(partition, member.session, member.node, member.address)
        return bool(await self._run("take", partition, member.session, _encode(holding), ttl_ms))

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        return frozenset(await self._run("renew", session, ttl_ms, *partitions))

    async def release(self, partition: int, session: str) -> None:
        await self._run("release", partition, session)

    async def holdings(self) -> list[HeldLease]:
        return sorted(map(_holding, await self._run("holdings")), key=lambda holding: holding.partition)
