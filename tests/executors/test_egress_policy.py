"""Where requests may go."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.executors.egress_policy import (
    LOOPBACK,
    AddressRefused,
    EgressPolicy,
    check_url,
    closed_by,
    network,
    plain_host,
)

PUBLIC, PUBLIC_6 = "93.184.216.34", "2606:2800:220:1::1"


class Names:
    """A resolver that answers from a list for each name, the last one for ever."""

    def __init__(self, **known: list[list[str]]) -> None:
        self.known, self.asked = known, []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self.known[host.partition(".")[0]]
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def refused_by(guard: EgressPolicy, host: str, port: int = 443) -> str:
    try:
        await guard.addresses(host, port)
    except AddressRefused as refused:
        return refused.rule
    return ""


@pytest.mark.proves("S40", "B20")
@pytest.mark.parametrize(
    ("scheme", "user", "rule"),
    [("ftp", b"", "scheme"), ("file", b"", "scheme"), ("gopher", b"", "scheme"), ("", b"", "scheme"),
     ("http", b"me", "credentials"), ("https", b"me:pw", "credentials")],
)  # fmt: skip
def test_other_schemes_and_credentials_are_refused(scheme, user, rule):
    with pytest.raises(AddressRefused) as refused:
        check_url(scheme, "shop.example", user)

    assert refused.value.rule == rule


@pytest.mark.proves("S40", "B20")
async def test_ports_are_a_list_that_the_operator_extends():
    assert [await refused_by(EgressPolicy(), PUBLIC, port) for port in (80, 443, 22, 8080)] == ["", "", "port", "port"]
    assert await refused_by(EgressPolicy(ports=[8080]), PUBLIC, 8080) == ""
    with pytest.raises(AddressRefused, match=r"port 25 .* \(80, 443 are\).*--allow-ports"):
        await EgressPolicy().addresses(PUBLIC, 25)


@pytest.mark.proves("S42", "B20")
@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("127.0.0.1", "loopback"), ("127.255.255.254", "loopback"), ("::1", "loopback"),
        ("10.0.0.1", "private"), ("172.16.0.1", "private"), ("172.31.255.255", "private"), ("192.168.1.1", "private"),
        ("169.254.0.1", "link-local"), ("fe80::1", "link-local"), ("febf::1", "link-local"),
        ("100.64.0.1", "carrier-grade NAT"), ("100.127.255.255", "carrier-grade NAT"),
        ("224.0.0.1", "multicast"), ("239.255.255.255", "multicast"), ("ff02::1", "multicast"),
        ("ff0e::1", "multicast"),
        ("0.0.0.0", "unspecified"), ("0.1.2.3", "unspecified"), ("::", "unspecified"),
        ("240.0.0.1", "reserved"), ("255.255.255.255", "reserved"), ("192.0.0.1", "reserved"),
        ("192.0.2.1", "documentation"), ("198.51.100.1", "documentation"), ("203.0.113.1", "documentation"),
        ("198.18.0.1", "benchmarking"), ("192.88.99.1", "6to4 relay"), ("2001:db8::1", "documentation"),
        ("::ffff:127.0.0.1", "IPv4-mapped"), ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("::127.0.0.1", "IPv4-compatible"), ("::8.8.8.8", "IPv4-compatible"),
        ("64:ff9b::7f00:1", "NAT64"), ("64:ff9b::808:808", "NAT64"), ("64:ff9b:1::1", "NAT64"),
        ("2002:7f00:1::", "6to4"), ("2001::1", "Teredo"), ("2001:10::1", "reserved"),
        ("fc00::1", "unique local"), ("fd12::1", "unique local"), ("fec0::1", "site-local"),
        ("100::1", "reserved"), ("::ffff:0:127.0.0.1", "reserved"), ("5f00::1", "reserved"), ("4000::1", "reserved"),
    ],
)  # fmt: skip
async def test_whatever_is_not_public_is_closed(address, rule):
    assert closed_by(ipaddress.ip_address(address)) == rule
    assert await refused_by(EgressPolicy(), address) == rule
    assert await refused_by(EgressPolicy(resolve=Names(shop=[[address]])), "shop.example") == rule


@pytest.mark.proves("S42")
@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_closed_whatever_it_is(inside):
    number = int(inside)
    for rule, whole in (
        ("IPv4-compatible", number),
        ("IPv4-mapped", 0xFFFF << 32 | number),
        ("NAT64", 0x0064FF9B << 96 | number),
        ("6to4", 0x2002 << 112 | number << 80),
        ("Teredo", 0x20010000 << 96 | number),
    ):
        assert closed_by(ipaddress.IPv6Address(whole)) in (rule, "unspecified", "loopback")


@pytest.mark.proves("S42")
@given(st.ip_addresses())
def test_nothing_is_open_that_the_library_would_close(address):
    assert closed_by(address) or (address.is_global and not address.is_multicast)


@pytest.mark.proves("S42")
@pytest.mark.parametrize("address", [PUBLIC, PUBLIC_6, "8.8.8.8", "172.32.0.1", "100.128.0.1", "11.0.0.1"])
async def test_public_addresses_are_open(address):
    assert await EgressPolicy().addresses(address, 443) == (address,)


@pytest.mark.proves("S43", "B20")
@pytest.mark.parametrize(
    ("host", "rule"),
    [
        ("127.1", "numeric host"), ("2130706433", "numeric host"), ("0x7f.1", "numeric host"),
        ("0177.0.0.1", "numeric host"), ("0x7f000001", "numeric host"), ("0", "numeric host"),
        ("1.2.3", "numeric host"),
        ("127.0.0.01", "numeric host"), ("256.1.1.1", "numeric host"), ("shop.example.1", "numeric host"),
        ("127.0.0.1.", "loopback"), ("LOCALHOST", "loopback"), ("localhost.", "loopback"), ("[::1]", "loopback"),
        ("127\u30020\u30020\u30021", "host"), ("127\uff0e0.0.1", "host"), ("\uff11\uff12\uff17.0.0.1", "host"),
        ("fe80::1%eth0", "zone id"), ("fe80::1%25eth0", "zone id"), ("%31%32%37.0.0.1", "host"),
        ("::1::", "host"), ("", "host"), (".", "host"), ("a..b", "host"), ("a b", "host"), ("a\nb", "host"),
        ("-a", "host"), ("a" * 64, "host"), ("a." * 127 + "a", "host"), ("shop.example\x00", "host"),
    ],
)  # fmt: skip
async def test_odd_forms_of_a_host_gain_nothing(host, rule):
    guard = EgressPolicy(resolve=Names(localhost=[["127.0.0.1"]]))

    assert await refused_by(guard, host) == rule


def test_a_host_has_one_form():
    assert [plain_host(one) for one in ("Shop.Example.", "xn--bcher-kva.example", "a_b.example", "[2606:2800::1]")] == [
        "shop.example", "xn--bcher-kva.example", "a_b.example", "2606:2800::1",
    ]  # fmt: skip


@pytest.mark.proves("S43")
async def test_a_name_with_the_address_of_an_interface_is_refused():
    assert await refused_by(EgressPolicy(resolve=Names(shop=[["fe80::1%2"]])), "shop.example") == "zone id"


@pytest.mark.proves("S41", "S45")
async def test_every_address_of_a_name_is_checked():
    guard = EgressPolicy(resolve=Names(good=[[PUBLIC, PUBLIC_6]], mixed=[[PUBLIC, "10.0.0.1"]], none=[[]]))

    assert await guard.addresses("good.example", 443) == (PUBLIC, PUBLIC_6)
    assert await refused_by(guard, "mixed.example") == "private"
    with pytest.raises(OSError, match="has no address"):
        await guard.addresses("none.example", 443)


@pytest.mark.proves("S46", "B20")
@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
     "::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1",
     "2001:0:0:0:0:0:5601:5601", "metadata.google.internal", "METADATA.google.internal.", "metadata",
     "instance-data", "metadata.azure.internal"],
)  # fmt: skip
async def test_the_keys_of_a_machine_are_out_of_reach_by_name_and_number(host):
    wide = EgressPolicy(networks=["0.0.0.0/0", "::/0"])

    assert await refused_by(EgressPolicy(), host) == await refused_by(wide, host) == "metadata"


@pytest.mark.proves("S46")
async def test_one_metadata_address_opens_when_it_is_named_alone():
    guard = EgressPolicy(networks=["169.254.169.254"], resolve=Names(inside=[["169.254.169.254"]]))

    assert await guard.addresses("inside.example", 80) == ("169.254.169.254",)
    assert await refused_by(guard, "169.254.170.2") == "metadata"


async def test_an_allowed_network_is_open_on_every_port_and_nothing_else_is():
    guard = EgressPolicy(
        networks=["10.1.0.0/16", "::1"], resolve=Names(shop=[["10.1.2.3"]], other=[["10.1.2.3", "10.2.0.1"]])
    )

    assert await guard.addresses("shop.example", 9000) == ("10.1.2.3",)
    assert await guard.addresses("::1", 9000) == ("::1",)
    assert await refused_by(guard, "other.example", 9000) == "private"
    assert await refused_by(guard, "127.0.0.1") == "loopback"
    assert await refused_by(guard, "::ffff:10.1.2.3") == "IPv4-mapped"


@pytest.mark.proves("S42")
async def test_our_own_service_is_out_of_reach():
    names = Names(tick=[[PUBLIC]], alias=[[PUBLIC]])
    guard = EgressPolicy(own=["https://tick.example", "http://10.0.0.5:8440"], networks=["10.0.0.0/24"], resolve=names)

    assert await refused_by(guard, "alias.example", 443) == "own service"
    assert await refused_by(guard, "alias.example", 80) == ""
    assert await refused_by(guard, "10.0.0.5", 8440) == "own service"
    assert await refused_by(guard, "10.0.0.5", 8441) == ""
    wide = EgressPolicy(own=["http://10.0.0.5:8440"], networks=["::/0"])
    assert await refused_by(wide, "::ffff:10.0.0.5", 8440) == "own service"
    assert await refused_by(wide, "::ffff:10.0.0.5", 8441) == ""
    assert await refused_by(EgressPolicy(own=["http://10.0.0.5:8440"], networks=["10.0.0.5"]), "10.0.0.5", 8440) == ""
    assert await refused_by(EgressPolicy(own=["http://127.0.0.1:8440"], networks=LOOPBACK), "127.0.0.1", 8440) == ""


async def test_a_refusal_says_which_rule_and_which_setting():
    with pytest.raises(AddressRefused) as refused:
        await EgressPolicy(resolve=Names(shop=[["10.1.2.3"]])).addresses("shop.example", 80)

    assert str(refused.value) == (
        "shop.example is 10.1.2.3, and that is not a public address (private); to allow it, add 10.1.2.3 or its "
        "network to the worker's setting allow_networks (--allow-networks)"
    )


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "10.0.0.1/8", "shop.example", "10.0.0.0-10.0.0.9"])
def test_a_network_that_is_none_is_refused(text):
    with pytest.raises(Refused, match="is neither a network"):
        network(text)
