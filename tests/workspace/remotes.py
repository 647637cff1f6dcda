"""What the tests of remotes share: a bare repository, clones of it as on several machines, and ways to reach it."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from subprocess import run
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dugnad.workspace.git.merge_queue import Conflict, Merged, prepare_target
from dugnad.workspace.git.remote import open_remote
from dugnad.workspace.git.sharing import SharedNames
from dugnad.workspace.git.worktree import Tree
from dugnad.workspace.git.worktrees import Trees
from tests.workspace.repository import CLEAN, FILES, attempt, finish, git, new_repository, trees_of

# In the place of ssh: git gives it a host and a command for the other side. `{before}` and `{after}` are shell.
_SSH = """#!/bin/sh
command="$(for last; do :; done; echo "$last")"
{before}
sh -c "$command"
{after}
"""

TARGET = "refs/heads/dugnad/main"


def bare(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", ".")
    return folder


def machines(folder: Path, count: int = 2, files: Mapping[str, str] = FILES) -> tuple[Path, list[Path]]:
    """A bare repository, and so many clones of it, each with a checkout of main."""
    remote, first = bare(folder / "remote.git"), new_repository(folder / "m1", files)
    git(first, "push", "--quiet", str(remote), "main")
    clones = [first]
    for number in range(2, count + 1):
        git(folder, "clone", "--quiet", str(remote), f"m{number}")
        (folder / f"m{number}" / ".dugnad").mkdir()
        (folder / f"m{number}" / ".dugnad" / ".gitignore").write_text("*\n")
        clones.append(folder / f"m{number}")
    return remote, clones


async def sharing(root: Path, remote: Path | str, environment: Mapping[str, str] = os.environ) -> Trees:
    """The trees of one machine."""
    trees = await trees_of(root, prepared=False)
    opened = await open_remote(str(remote), trees.git, environment)
    trees.shared = SharedNames(git=trees.git, remote=opened, target_name=trees.target_name)
    await prepare_target(trees, "refs/heads/main")
    return trees


def at_once(trees: Trees, seconds: float = 60.0) -> None:
    """Have it ask a remote that gives no answer no second time."""
    assert trees.shared is not None
    trees.shared.remote = trees.shared.remote.at_once(seconds)


async def begun(trees: Trees, task: int, epoch: int = 1, born: int | None = None, *, in_order: bool = True) -> Tree:
    """As a claim begins."""
    which = attempt(task, epoch, born, in_order=in_order)
    await trees.claimed(which.mark, which.epoch)
    return await trees.begin(which)


async def handed_on(trees: Trees, tree: Tree) -> None:
    """As an attempt ends that another goes on from."""
    assert trees.shared is not None
    await trees.shared.hand_on(tree, "alice")


def names_at(remote: Path) -> list[str]:
    return [each.partition(" ")[0] for each in git(remote, "for-each-ref", "--format=%(refname) .").splitlines()]


def ssh_script(folder: Path, before: str = "", after: str = "") -> dict[str, str]:
    """An environment in which ssh is a script of ours that reaches this machine."""
    script = folder / "ssh"
    script.write_text(_SSH.format(before=before, after=after))
    script.chmod(0o755)
    return {**os.environ, "GIT_SSH_COMMAND": str(script), "GIT_SSH_VARIANT": "simple"}


def replaced(trees: Trees, environment: Mapping[str, str]) -> None:
    """Have it reach the remote with other variables from now on."""
    assert trees.shared is not None
    trees.shared.remote = replace(trees.shared.remote, environment=environment)


@contextmanager
def http_server(folder: Path, authorized: str | None = None, certificate: Path | None = None) -> Iterator[str]:
    """Git's own program behind a small server on loopback: the address of the folder's repositories. `authorized`: what
    a request must bring. `certificate`: with its key, for https."""
    backend = Path(run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip())

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if authorized is not None and self.headers.get("Authorization") != authorized:
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            about = {
                **CLEAN, "GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": "somebody",
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }  # fmt: skip
            given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made = run([backend / "git-http-backend"], env=about, input=given, capture_output=True, check=False).stdout
            head, _, body = made.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *given: object) -> None:
            print(format % given, file=sys.stderr)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    if certificate is not None:
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(certificate)
        server.socket = secure.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def new_certificate(where: Path) -> Path:
    """A certificate for loopback that only its owner signed, and its key, in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = serialization.Encoding.PEM
    where.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, *plain))
    return where


async def two(folder: Path) -> tuple[Path, Trees, Trees]:
    remote, (first, second) = machines(folder)
    return remote, await sharing(first, remote), await sharing(second, remote)


def root_of(trees: Trees) -> Path:
    return trees.git.top


async def done(trees: Trees, task: int, text: str = "x\n") -> Merged | Conflict | object:
    tree = await begun(trees, task)
    (tree.path / f"{task}.txt").write_text(text)
    came = await finish(trees, tree)
    await trees.remove(tree)
    await trees.forget(tree.attempt.mark)
    return came


async def unanswered(trees: Trees, remote: Path, script: dict[str, str]) -> None:
    """Reach it by ssh from now on."""
    trees_by_ssh = await sharing(root_of(trees), f"here:{remote}", script)
    trees.shared = trees_by_ssh.shared
