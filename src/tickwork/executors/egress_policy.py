"""Which addresses a request on behalf of users may reach: public ones, and what the operator has named.

A name is resolved once, every address it has is checked, and the connection goes to one of those very addresses:
a name that answers differently the second time gains nothing. Whatever two parsers could read differently (`127.1`,
`0x7f.1`, a zone id) is refused by its form. Addresses that carry another one inside (mapped, NAT64, 6to4, Teredo) are
refused as such, whatever is inside.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from urllib.parse import urlsplit

from tickwork.core.base.errors import Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

PORTS = frozenset((80, 443))
LOOPBACK = ("127.0.0.0/8", "::1/128")
# The first that fits names the rule, so the narrow ones come first.
_CLOSED = tuple((ipaddress.ip_network(text), rule) for text, rule in (
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "carrier-grade NAT"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::/96", "IPv4-compatible"),
    ("::ffff:0:0/96", "IPv4-mapped"),
    ("64:ff9b::/96", "NAT64"),
    ("64:ff9b:1::/48", "NAT64"),
    ("2001::/32", "Teredo"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("3fff::/20", "documentation"),
    ("fc00::/7", "unique local"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
))  # fmt: skip
_CARRYING = tuple(map(ipaddress.ip_network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")))
_PUBLIC_6 = ipaddress.ip_network("2000::/3")  # of version 6, nothing else has been given out
# Where clouds tell a machine its own keys. Some lie outside every range above.
_METADATA = frozenset(ipaddress.ip_address(text) for text in (
    "100.100.100.200", "168.63.129.16", "169.254.169.254", "169.254.170.2", "169.254.170.23", "192.0.0.192",
    "fd00:ec2::23", "fd00:ec2::254", "fd20:ce::254",
))  # fmt: skip
_METADATA_NAMES = frozenset((
    "instance-data", "instance-data.ec2.internal", "metadata", "metadata.azure.internal", "metadata.goog",
    "metadata.google.internal", "metadata.tencentyun.com",
))  # fmt: skip
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
DEFAULT_PORTS = MappingProxyType({"http": 80, "https": 443})


class AddressRefused(Exception):
    """A request that must not leave. `rule` is one or two words for programs, the message says what to change."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


# As many as requests at once. In the loop's own threads, a few names that no server answers for would keep this process
# from its files and from its server until the system gives up on them, long after the requests themselves did.
_LOOKUPS = ThreadPoolExecutor(64, thread_name_prefix="lookup")


async def system_resolve(host: str, port: int) -> Sequence[str]:
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    records = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return list(dict.fromkeys(str(record[4][0]) for record in records))


class EgressPolicy:
    """`networks` may be reached on every port, public addresses on 80, 443 and `ports`.

    `own` are the URLs of this product's own services. They, and the places where a cloud keeps a machine's keys, stay
    closed inside a network that is allowed as a whole; they open for an entry that names that one address. A service
    of our own on loopback is open with loopback: that is a developer's machine.
    """

    def __init__(
        self,
        *,
        networks: Iterable[str] = (),
        ports: Iterable[int] = (),
        own: Iterable[str] = (),
        resolve: Resolve = system_resolve,
    ) -> None:
        self._networks = tuple(network(text) for text in networks)
        self._ports = PORTS | frozenset(ports)
        self._own = tuple((parts.hostname or "", _port(parts.scheme, parts.port)) for parts in map(urlsplit, own))
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Where to connect, checked: all of them or none. Raises `AddressRefused`, or `OSError` for an unknown name."""
        name = plain_host(host)
        literal = _address(name)
        texts = [name] if literal else await self._resolve(name, port)
        resolved = tuple(_resolved(text, host) for text in texts)
        if not resolved:
            raise OSError(f"{host} has no address")
        own = await self._own_addresses(port)
        for address in resolved:
            self._check(address, host, port, own)
        return tuple(str(address) for address in resolved)

    def _check(self, address: Address, host: str, port: int, own: Sequence[Address]) -> None:
        what = str(address) if str(address) == host else f"{host} is {address}, and that"
        if self._named(address):
            return
        forms = (address, *_inside(address))
        if not _METADATA.isdisjoint(forms):
            message = (
                f"{what} is the cloud's metadata service with credentials; add exactly this address to allow_networks"
            )
            raise AddressRefused("metadata", f"{message} ({address}) if requests must reach it")
        allowed = any(address in network for network in self._networks)
        if any(form in own for form in forms) and not (allowed and address.is_loopback):
            message = f"{what} is this scheduler's own service; add exactly this address to allow_networks"
            raise AddressRefused("own service", f"{message} ({address}) if requests must reach it")
        if allowed:
            return
        if rule := closed_by(address):
            message = f"{what} is not a public address ({rule}); to allow it, add {address} or its network to the "
            raise AddressRefused(rule, f"{message}worker's setting allow_networks (--allow-networks)")
        if port not in self._ports:
            open_ports = ", ".join(map(str, sorted(self._ports)))
            message = f"port {port} of {host} is not open to requests ({open_ports} are); add it to the worker's"
            raise AddressRefused("port", f"{message} setting allow_ports (--allow-ports)")

    def _named(self, address: Address) -> bool:
        return any(network.num_addresses == 1 and address in network for network in self._networks)

    async def _own_addresses(self, port: int) -> list[Address]:
        addresses: list[Address] = []
        for host, own_port in self._own:
            if own_port == port:
                texts = [host] if _address(host) else await self._resolve(host, port)
                addresses += [ipaddress.ip_address(text.partition("%")[0]) for text in texts]
        return addresses


def check_url(scheme: str, host: str, user_info: bytes) -> None:
    """Check what is known before a name is looked up. Raises `AddressRefused`."""
    if scheme not in DEFAULT_PORTS:
        raise AddressRefused("scheme", f"the scheme of a URL must be http or https, not {scheme or 'empty'}")
    if user_info:
        raise AddressRefused(
            "credentials", "a URL must not contain a user or password; use a header, or sign the request"
        )
    plain_host(host)


def plain_host(host: str) -> str:
    """The name in the one form that is looked up. Raises `AddressRefused` for a form that could mean two things."""
    name = host.lower().removesuffix(".").removeprefix("[").removesuffix("]")
    if ":" in name:
        if "%" in name:
            raise AddressRefused("zone id", f"{host} names a network interface; use an address without a zone")
        if _address(name) is None:
            raise AddressRefused("host", f"{host} is not a valid IPv6 address")
        return name
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise AddressRefused(
            "host", f"{host!a} is not a valid host name; write it in ASCII (punycode for other letters)"
        )
    if _NUMBER.fullmatch(name.rpartition(".")[2]) and _address(name) is None:
        message = f"{host} is a number that programs read differently; write four decimal numbers, such as 192.0.2.1"
        raise AddressRefused("numeric host", message)
    if name in _METADATA_NAMES:
        raise AddressRefused("metadata", f"{host} is a cloud's metadata service; requests never reach it by name")
    return name


def closed_by(address: Address) -> str:
    """The rule that closes an address to requests; "" for a public one. `is_global` alone misses several."""
    for network_, rule in _CLOSED:
        if address in network_:
            return rule
    if address.version == 6 and address not in _PUBLIC_6:
        return "reserved"
    return "" if address.is_global else "reserved"


def _inside(address: Address) -> tuple[Address, ...]:
    """The address of version 4 that one of version 6 carries: a network that is allowed as a whole may hold such."""
    if address.version == 4:
        return ()
    if address.teredo is not None:
        return address.teredo
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return (
        (ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF),) if any(address in network for network in _CARRYING) else ()
    )


def network(text: str) -> Network:
    """`10.1.0.0/16`, or one address. Raises `Refused`."""
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        message = f"{text.strip()!r} is neither a network such as 10.1.0.0/16 nor an address: {error}"
        raise Refused("bad_network", message, path="allow_networks") from None


def _resolved(text: str, host: str) -> Address:
    if "%" in text:
        raise AddressRefused("zone id", f"{host} is {text}, an address of one network interface")
    return ipaddress.ip_address(text)


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _port(scheme: str, port: int | None) -> int:
    return port or DEFAULT_PORTS.get(scheme, 0)
