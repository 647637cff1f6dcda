"""Which servers of one's own can be named, and what a request to the proxy must say to get one."""

from __future__ import annotations

import pytest

from dugnad.errors import BadInput
from dugnad.workspace.sandbox.destinations import PROXY_PORT, DestinationRefused, parse_hosts
from dugnad.workspace.sandbox.services import (
    Service,
    asked_service,
    hosts_file,
    listened_at,
    names_beside,
    parse_services,
)

BOTH = ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("entry", "service"),
    [
        ("localhost:4000", Service("localhost", 4000, BOTH)),
        ("LocalHost:4000", Service("localhost", 4000, BOTH)),
        ("127.0.0.1:4000", Service("127.0.0.1", 4000, ("127.0.0.1",))),
        ("127.0.0.53:1", Service("127.0.0.53", 1, ("127.0.0.53",))),
        ("[::1]:4000", Service("::1", 4000, ("::1",))),
        ("[FD00:0:0::7]:65535", Service("fd00::7", 65_535, ("fd00::7",))),
        ("10.1.2.3:8080", Service("10.1.2.3", 8080, ("10.1.2.3",))),
        ("100.101.2.3:8080", Service("100.101.2.3", 8080, ("100.101.2.3",))),
        ("gateway:4000", Service("gateway", 4000)),
        ("Gateway.Corp:443", Service("gateway.corp", 443)),
    ],
)
def test_a_service_is_one_name_or_address_with_its_port(entry: str, service: Service) -> None:
    assert parse_services([entry]) == (service,)


@pytest.mark.parametrize(
    "entry",
    [
        "", "localhost", "4000", ":4000", "localhost:", "localhost:0", "localhost:04000", "localhost:65536",
        "localhost:-1", "localhost:4000-5000", "localhost:*", "*:4000", "*.corp:4000", "local*:4000",
        "http://localhost:4000", "localhost:4000/v1", "user@localhost:4000", "localhost:4000:5000", "localhost 4000",
        " localhost:4000", "localhost:4000\n", "localhost.:4000", "127.1:4000", "2130706433:4000", "0x7f000001:4000",
        "0x7f.0.0.1:4000", "0177.0.0.1:4000", "127.0.0.01:4000", "10.0.0.0/8:4000", "::1:4000", "[::1]",
        "[127.0.0.1]:4000",
        "[::ffff:127.0.0.1]:4000", "[::ffff:7f00:1]:4000", "[64:ff9b::7f00:1]:4000", "[fe80::1%eth0]:4000",
        "[fe80::1]:4000", "[::]:4000", "[ff02::1]:4000", "0.0.0.0:4000", "169.254.169.254:80", "168.63.129.16:80",
        "100.100.100.200:80", "[fd00:ec2::254]:80", "224.0.0.1:4000", "255.255.255.255:4000", "lоcalhost:4000",
        "ｌocalhost:4000", "local。host:4000", "local_host:4000", "a" * 64 + ":4000",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_sentence(entry: str) -> None:
    with pytest.raises(
        BadInput, match=r"is not a service; write one name or address and a port, such as localhost:4000\.$"
    ):
        parse_services([entry])


def test_the_port_of_the_proxy_cannot_be_a_service() -> None:
    with pytest.raises(BadInput, match="has a port of the sandbox's own"):
        parse_services([f"localhost:{PROXY_PORT}"])


def test_there_can_be_few_services() -> None:
    assert len(parse_services([f"localhost:{port}" for port in range(1, 17)])) == 16
    with pytest.raises(BadInput, match="17 services; name at most 16"):
        parse_services([f"localhost:{port}" for port in range(1, 18)])


@pytest.mark.parametrize("address", ["169.254.169.254", "0.0.0.0", "::", "::ffff:10.0.0.1", "fe80::1%2", "x"])
def test_a_name_that_leads_where_no_service_can_be_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match=r"gateway:4000 leads to .* where no service can be"):
        Service("gateway", 4000).resolved([address])


def test_a_name_means_the_first_of_its_addresses_and_one_without_any_is_refused() -> None:
    assert Service("gateway", 4000).resolved(["10.0.0.7", "10.0.0.8"]) == Service("gateway", 4000, ("10.0.0.7",))
    with pytest.raises(BadInput, match="gateway:4000 has no address; correct `services`"):
        Service("gateway", 4000).resolved([])


def test_the_sandbox_listens_at_the_addresses_of_services_and_tries_the_same_one_first() -> None:
    services = (*parse_services(["localhost:4000", "127.0.0.1:4000", "10.0.0.7:4000"]),
                Service("gateway", 4000, ("10.0.0.7",)))  # fmt: skip
    assert {place: each.addresses for place, each in listened_at(services).items()} == {
        ("127.0.0.1", 4000): BOTH, ("::1", 4000): ("::1", "127.0.0.1"), ("10.0.0.7", 4000): ("10.0.0.7",),
    }  # fmt: skip


def test_names_lead_to_their_services_inside_and_addresses_need_no_name() -> None:
    services = (*parse_services(["localhost:4000", "10.0.0.7:80"]), Service("gateway.corp", 80, ("10.0.0.8",)))
    assert hosts_file(services).decode().splitlines() == [
        "10.0.0.8 gateway.corp", "127.0.0.1 localhost sandbox", "::1 localhost",
    ]  # fmt: skip


def test_services_are_reached_beside_the_proxy_except_where_the_name_is_a_host_too() -> None:
    services = (Service("gateway.corp", 80, ("10.0.0.8",)), *parse_services(["10.0.0.7:80"]))
    assert names_beside(services, ()) == ["gateway.corp", "10.0.0.8", "10.0.0.7"]
    assert names_beside(services, parse_hosts(["gateway.corp:8443"])) == ["10.0.0.8", "10.0.0.7"]


LISTED = {
    spelling: each
    for each in (*parse_services(["localhost:4000"]), Service("gw.corp", 80, ("10.0.0.8",)))
    for spelling in each.spellings
}


@pytest.mark.parametrize("authority", ["localhost:4000", "LOCALHOST:4000", "127.0.0.1:4000", "[::1]:4000"])
def test_a_tunnel_to_a_service_is_asked_for_by_its_name_or_address(authority: str) -> None:
    found = asked_service(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}".encode(), LISTED)
    assert found == (LISTED["localhost:4000"], b"")


def test_a_plain_request_is_sent_on_alone_and_without_what_is_meant_for_the_proxy() -> None:
    head = (
        b"POST http://localhost:4000/v1/messages?beta=true HTTP/1.1\r\nHost: localhost:4000\r\nContent-Length: 2\r\n"
        b"Connection: keep-alive\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: x\r\nX-Key: y"
    )
    found = asked_service(head, LISTED)
    assert found is not None
    assert found[0] == LISTED["localhost:4000"]
    assert found[1] == (
        b"POST /v1/messages?beta=true HTTP/1.1\r\nContent-Length: 2\r\nX-Key: y\r\nHost: localhost:4000\r\n"
        b"Connection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("target", "path"), [("http://gw.corp", b"/"), ("http://gw.corp:80?x", b"/?x"), ("http://GW.corp/a b", None)]
)
def test_port_80_need_not_be_written_in_a_plain_request(target: str, path: bytes | None) -> None:
    found = asked_service(f"GET {target} HTTP/1.0".encode(), LISTED)
    assert (found[1].split()[1] if found else None) == path


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT localhost:4001 HTTP/1.1", "CONNECT localhost:04000 HTTP/1.1", "CONNECT localhost.:4000 HTTP/1.1",
        "CONNECT localhost HTTP/1.1", "CONNECT gw.corp HTTP/1.1", "CONNECT 127.0.0.2:4000 HTTP/1.1",
        "CONNECT 127.1:4000 HTTP/1.1", "CONNECT 2130706433:4000 HTTP/1.1", "CONNECT 0x7f000001:4000 HTTP/1.1",
        "CONNECT 0177.0.0.1:4000 HTTP/1.1", "CONNECT [::ffff:127.0.0.1]:4000 HTTP/1.1",
        "CONNECT [0:0:0:0:0:0:0:1]:4000 HTTP/1.1", "CONNECT ::1:4000 HTTP/1.1", "CONNECT x.localhost:4000 HTTP/1.1",
        "CONNECT localhost:4000@evil.org:4000 HTTP/1.1", "CONNECT evil.org#localhost:4000 HTTP/1.1",
        "GET http://localhost:4000@evil.org/ HTTP/1.1", "GET http://evil.org/http://localhost:4000/ HTTP/1.1",
        "GET http://user@localhost:4000/ HTTP/1.1", "GET https://localhost:4000/ HTTP/1.1", "GET / HTTP/1.1",
        "GET localhost:4000 HTTP/1.1", "GET http:/localhost:4000/ HTTP/1.1", "GET //localhost:4000/ HTTP/1.1",
        "GET http://localhost:4000/ HTTP/2", "get http://localhost:4000/ HTTP/1.1", "GET http://localhost/ HTTP/1.1",
        "GET http://localhost:4000\\@evil.org/ HTTP/1.1", "GET http://*:4000/ HTTP/1.1",
    ],
)  # fmt: skip
def test_no_other_spelling_asks_for_a_service(line: str) -> None:
    assert asked_service(line.encode(), LISTED) is None


@pytest.mark.parametrize("first", ["CONNECT localhost:4000 HTTP/1.1", "GET http://localhost:4000/ HTTP/1.1"])
@pytest.mark.parametrize(
    "header",
    ["Host: evil.org", "Host: localhost:4001", "Host: 127.0.0.1:4000", "Host: localhost:4000\r\nhost: evil.org",
     "A : b", " folded", "no colon", "A: b\nHost: evil.org", "A: \x00", "\r\n".join(["A: b"] * 65)],
)  # fmt: skip
def test_a_request_that_names_two_hosts_or_is_not_clear_is_refused(first: str, header: str) -> None:
    with pytest.raises(DestinationRefused):
        asked_service(f"{first}\r\n{header}".encode(), LISTED)


def test_a_tunnel_has_no_body() -> None:
    with pytest.raises(DestinationRefused, match="does not belong there"):
        asked_service(b"CONNECT localhost:4000 HTTP/1.1\r\nContent-Length: 5", LISTED)
