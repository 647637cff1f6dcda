"""Which hosts can be named, how one is asked for, and which addresses are the world's."""

from __future__ import annotations

import pytest

from dugnad.errors import BadInput
from dugnad.workspace.sandbox.destinations import (
    Destination,
    DestinationRefused,
    is_outside,
    judge,
    parse_hosts,
    read_head,
)

LITERALS = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "[::1]", "::1",
    "[::ffff:127.0.0.1]", "0", "1.1.1.1", "999.999.999.999", "1.2.3.4.", "example.0x7f", "a.1",
]  # fmt: skip
ODD_NAMES = [
    "localhost", "example.org.", ".example.org", "exa mple.org", "example..org", "-a.example.org", "a-.example.org",
    "exämple.org", "ｅxample.org", "example。org", "example.org%00.com", "user@example.org", "example.org/x", "*",
    "*.", "*.*.example.org", "a.*.org", "", "_dmarc.example.org", "a" * 64 + ".org", "a." * 127 + "org", "example.o:g",
]  # fmt: skip


def test_an_entry_is_a_name_or_all_below_one_with_a_port_if_it_is_not_443() -> None:
    assert parse_hosts(["PyPI.org", "*.example.org", "example.org:8443", "pypi.org:443", "xn--bcher-kva.example"]) == (
        Destination("pypi.org"), Destination("example.org", below=True),
        Destination("example.org", 8443), Destination("xn--bcher-kva.example"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "entry", [*LITERALS, *ODD_NAMES, "a.org:", "a.org:0", "a.org:080", "a.org:70000", "https://a.org"]
)
def test_anything_else_is_no_entry(entry: str) -> None:
    with pytest.raises(BadInput, match="is not a host to be reached"):
        parse_hosts([entry])


@pytest.mark.parametrize(
    ("name", "port", "allowed"),
    [
        ("pypi.org", 443, True), ("pypi.org", 80, False), ("www.pypi.org", 443, False), ("evilpypi.org", 443, False),
        ("a.example.org", 443, True), ("a.b.example.org", 443, True), ("example.org", 443, False),
        ("badexample.org", 443, False), ("example.org.evil.com", 443, False), ("git.net", 8443, True),
        ("git.net", 443, False),
    ],
)  # fmt: skip
def test_a_name_and_its_port_must_be_covered(name: str, port: int, allowed: bool) -> None:
    hosts = parse_hosts(["pypi.org", "*.example.org", "git.net:8443"])
    if allowed:
        judge(hosts, name, port)
        return
    with pytest.raises(
        DestinationRefused, match=r"is not among the hosts .*: pypi\.org, \*\.example\.org, git\.net:8443"
    ):
        judge(hosts, name, port)


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT Files.Example.org:443 HTTP/1.1",
        b"CONNECT files.example.org:443 HTTP/1.0",
        b"CONNECT files.example.org:443 HTTP/1.1\r\nHost: files.example.org:443\r\nUser-Agent: curl/8\r\nX:",
        b"CONNECT files.example.org:443 HTTP/1.1\r\nhost:files.example.org\r\nProxy-Connection: Keep-Alive",
    ],
)
def test_what_ordinary_programs_send_is_understood(head: bytes) -> None:
    assert read_head(head) == ("files.example.org", 443)


@pytest.mark.parametrize("name", [*LITERALS, *ODD_NAMES])
def test_what_is_not_a_name_is_refused_before_anybody_resolves_it(name: str) -> None:
    with pytest.raises(DestinationRefused):
        read_head(f"CONNECT {name}:443 HTTP/1.1".encode())


GOOD = b"CONNECT a.example.org:443 HTTP/1.1"


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\r\n" + GOOD, b" " + GOOD, GOOD + b" ", GOOD.lower(), GOOD.replace(b" ", b"  ", 1),
        GOOD.replace(b" ", b"\t"), GOOD.replace(b"1.1", b"1.2"), GOOD.replace(b"1.1", b"2"), GOOD.replace(b":443", b""),
        GOOD.replace(b":443", b":"), GOOD.replace(b":443", b":0443"), GOOD.replace(b":443", b":443:443"),
        GOOD.replace(b":443", b":65536"), GOOD.replace(b":443", b":+443"), GOOD.replace(b"a.", b"a@"),
        b"GET http://a.example.org/ HTTP/1.1", b"GET / HTTP/1.1", b"POST https://a.example.org:443/ HTTP/1.1",
        GOOD + b"\nHost: a.example.org", GOOD + b"\rHost: a.example.org", GOOD + b"\0",
        GOOD + b"\r\n folded: x", GOOD + b"\r\nA: b\r\n\tc", GOOD + b"\r\nA : b", GOOD + b"\r\nno colon",
        GOOD + b"\r\nA: b\nC: d", GOOD + b"\r\nA: b\rC: d", GOOD + b"\r\nA: \x00", GOOD + b"\r\nA: \xff",
        GOOD + b"\r\n: empty", GOOD + b"\r\nContent-Length: 5", GOOD + b"\r\nTransfer-Encoding: chunked",
        GOOD + b"\r\nUpgrade: h2c", GOOD + b"\r\nHost: b.example.org", GOOD + b"\r\nHost: a.example.org:80",
        GOOD + b"\r\nHost: a.example.org\r\nHost: b.example.org", GOOD + b"\r\nA: b" * 65,
    ],
)  # fmt: skip
def test_every_other_form_of_request_is_refused(head: bytes) -> None:
    with pytest.raises(DestinationRefused):
        read_head(head)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.0.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
        "100.100.100.200", "169.254.169.254", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.251", "240.0.0.1",
        "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "fe80::1",
        "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1", "x",
    ],
)  # fmt: skip
def test_addresses_of_this_machine_its_network_and_its_cloud_are_not_the_worlds(address: str) -> None:
    assert not is_outside(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "151.101.0.223", "172.32.0.1", "2606:4700::1111", "2a04:4e42::223"]
)
def test_others_are(address: str) -> None:
    assert is_outside(address)
