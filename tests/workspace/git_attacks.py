"""Ways to have git run a program: settings, attributes, layouts. Each with a control that shows that plain git runs it.

`{run}` is a program that notes that it ran.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

FILES = {"a.txt": "a\n", "b.bin": "b\n", "c.py": "c = 1\n"}
ADD = "echo more >> a.txt; git add a.txt || true"
CHECKOUT = "rm a.txt; git checkout a.txt || true"
COMMIT = "git commit --quiet --allow-empty -m x || true"
DIFF = "echo more >> a.txt; git diff"
MERGE = (
    "git checkout -q -b one && echo 'c = 2' > c.py && git commit -qam 1 && git checkout -q main && "
    "echo 'c = 3' > c.py && git commit -qam 2 && git merge one || true"
)
TERMINAL = f"{sys.executable} -c \"import pty; pty.spawn(['git', 'log'])\""
FILTER = '[filter "x"]\n\tclean = {run}\n\tsmudge = {run}\n'
BY_X = {".gitattributes": "*.txt filter=x\n"}
NESTED = (
    "mkdir n && cd n && git init -q . && echo '*.txt filter=x' > .gitattributes && echo a > a.txt && "
    "git add -A && git {person} commit -qm n && git config filter.x.clean {run} && echo b > a.txt && "
    "touch -t 202001010000 a.txt"
)
TWICE = "git add -A; touch n/a.txt; git add -A || true; git status || true; git diff || true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`settings` go to .git/config, `files` are committed, `beside` is put into .git; `left` is what a command leaves
    in a tree, and `before` prepares the repository. `control` is what a person types, in the repository."""

    name: str
    control: str
    settings: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    left: str = ""


def _hook(name: str, control: str) -> Attack:
    return Attack(name=f"hook {name}", beside={f"hooks/{name}": "#!/bin/sh\n{run}\n"}, control=control)


def _include(condition: str, more: str = "") -> Attack:
    settings = f'{more}[includeIf "{condition}"]\n\tpath = evil\n'
    return Attack(
        name=f"includeIf {condition}", settings=settings, beside={"evil": FILTER}, files=BY_X, control=ADD
    )  # fmt: skip


ATTACKS = (
    # Filters.
    Attack(name="clean filter", settings='[filter "x"]\n\tclean = {run}\n', files=BY_X, control=ADD),
    Attack(name="smudge filter", settings='[filter "x"]\n\tsmudge = {run}\n', files=BY_X, control=CHECKOUT),
    Attack(name="process filter", settings='[filter "x"]\n\tprocess = {run}\n', files=BY_X, control=ADD),
    Attack(
        name="required filter", settings=FILTER + "\trequired = true\n", files=BY_X, control=ADD
    ),
    Attack(
        name="filter without a name", settings='[filter ""]\n\tclean = {run}\n',
        files={".gitattributes": "*.txt filter=\n"}, control=ADD,
    ),
    Attack(
        name="filter with = in its name", settings='[filter "x=y"]\n\tclean = {run}\n',
        files={".gitattributes": "*.txt filter=x=y\n"}, control=ADD,
    ),
    Attack(
        name="filter with quotes and dots in its name", settings='[filter "a.\\"b\\\\.c"]\n\tclean = {run}\n',
        files={".gitattributes": '*.txt filter=a."b\\.c\n'}, control=ADD,
    ),
    Attack(name="info/attributes", settings=FILTER, beside={"info/attributes": "* filter=x\n"}, control=ADD),
    Attack(
        name="core.attributesFile", settings=FILTER + "[core]\n\tattributesFile = {root}/.git/evil\n",
        beside={"evil": "* filter=x\n"}, control=ADD,
    ),
    # Drivers.
    Attack(
        name="merge driver", settings='[merge "m"]\n\tdriver = {run}\n', files={".gitattributes": "*.py merge=m\n"},
        control=MERGE,
    ),
    Attack(name="merge.default", settings='[merge]\n\tdefault = m\n[merge "m"]\n\tdriver = {run}\n', control=MERGE),
    Attack(
        name="merge driver in place of a built-in", settings='[merge "union"]\n\tdriver = {run}\n',
        files={".gitattributes": "*.py merge=union\n"}, control=MERGE,
    ),
    Attack(
        name="diff driver", settings='[diff "d"]\n\tcommand = {run}\n', files={".gitattributes": "* diff=d\n"},
        control=DIFF,
    ),
    Attack(
        name="textconv", settings='[diff "d"]\n\ttextconv = {run}\n', files={".gitattributes": "* diff=d\n"},
        control=DIFF,
    ),
    Attack(name="diff.external", settings="[diff]\n\texternal = {run}\n", control=DIFF),
    Attack(
        name="difftool", settings='[difftool "d"]\n\tcmd = {run}\n',
        control="echo more >> a.txt; git difftool -y -t d || true",
    ),
    Attack(
        name="mergetool", settings='[mergetool "d"]\n\tcmd = {run}\n',
        control=f"{MERGE}; git mergetool -y -t d || true",
    ),
    # Monitors and hooks.
    Attack(name="core.fsmonitor", settings="[core]\n\tfsmonitor = {run}\n", control="git status"),
    Attack(
        name="core.hooksPath", settings="[core]\n\thooksPath = {root}/.git/evil\n",
        beside={"evil/reference-transaction": "#!/bin/sh\n{run}\n", "evil/post-index-change": "#!/bin/sh\n{run}\n"},
        control=COMMIT,
    ),
    _hook("pre-commit", COMMIT),
    _hook("prepare-commit-msg", COMMIT),
    _hook("commit-msg", COMMIT),
    _hook("post-commit", COMMIT),
    _hook("reference-transaction", COMMIT),
    _hook("post-index-change", ADD),
    _hook("post-checkout", "git checkout -q -b other"),
    _hook("post-merge", "git checkout -q -b o && git commit -q --allow-empty -m x && git checkout -q - && git merge o"),
    # Signing.
    Attack(name="gpg.program", settings="[gpg]\n\tprogram = {run}\n[commit]\n\tgpgSign = true\n", control=COMMIT),
    Attack(
        name="gpg.ssh.program", control=COMMIT,
        settings='[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tprogram = {run}\n[commit]\n\tgpgSign = true\n'
        "[user]\n\tsigningKey = /dev/null\n",
    ),
    Attack(
        name="gpg.x509.program", control=COMMIT,
        settings='[gpg]\n\tformat = x509\n[gpg "x509"]\n\tprogram = {run}\n[commit]\n\tgpgSign = true\n',
    ),
    Attack(
        name="log.showSignature", settings="[gpg]\n\tprogram = {run}\n[log]\n\tshowSignature = true\n",
        before="made=$(git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n x\\n "
        "-----END PGP SIGNATURE-----' | git hash-object -t commit -w --stdin) && git reset -q --hard $made",
        control="git log -1",
    ),
    # What talks to others.
    Attack(name="core.sshCommand", settings="[core]\n\tsshCommand = {run}\n", control="git ls-remote x@y:z || true"),
    Attack(name="core.gitProxy", settings="[core]\n\tgitProxy = {run}\n", control="git ls-remote git://y/z || true"),
    Attack(
        name="credential.helper", settings="[credential]\n\thelper = {run}\n",
        control="printf 'protocol=https\\nhost=x\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill || true",
    ),
    Attack(
        name="core.askPass", settings="[core]\n\taskPass = {run}\n",
        control="printf 'protocol=https\\nhost=x\\n\\n' | git credential fill || true",
    ),
    Attack(
        name="remote.uploadpack of a partial clone", control=f"git cat-file -p {'12345' * 8} || true",
        settings='[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = o\n[remote "o"]\n\turl = .\n'
        "\tpromisor = true\n\tuploadpack = {run}\n",
    ),
    Attack(
        name="remote with ext::", control="git fetch o || true",
        settings='[protocol "ext"]\n\tallow = always\n[remote "o"]\n\turl = ext::{run}\n\tpromisor = true\n',
    ),
    Attack(
        name="core.alternateRefsCommand", settings="[core]\n\talternateRefsCommand = {run}\n",
        before="git clone -q --bare . ../alternate && echo {root}/../alternate/objects > .git/objects/info/alternates",
        control="git clone -q . ../o && cd ../o && git {person} commit -qm x --allow-empty && "
        "git push -q origin HEAD:refs/heads/z || true",
    ),
    # What a person sees, and writes in.
    Attack(name="core.pager", settings="[core]\n\tpager = {run}\n", control=TERMINAL),
    Attack(name="pager of one command", settings="[pager]\n\tlog = {run}\n", control=TERMINAL),
    Attack(name="core.editor", settings="[core]\n\teditor = {run}\n", control="git commit --allow-empty || true"),
    Attack(
        name="sequence.editor", settings="[sequence]\n\teditor = {run}\n",
        control="git checkout -qf .; git commit -q --allow-empty -m x; git rebase -i HEAD~1 || true",
    ),
    Attack(name="alias", settings="[alias]\n\tx = !{run}\n", control="git x"),
    Attack(
        name="trailer command", settings='[trailer "x"]\n\tkey = X\n\tifmissing = add\n\tcommand = {run}\n',
        control="echo t | git interpret-trailers --trailer x=y",
    ),
    Attack(name="tar command", settings='[tar "x"]\n\tcommand = {run}\n', control="git archive --format=x HEAD"),
    # Settings elsewhere.
    Attack(
        name="include.path", settings="[include]\n\tpath = evil\n", beside={"evil": FILTER}, files=BY_X, control=ADD
    ),
    _include("gitdir:**"),
    _include("gitdir/i:**"),
    _include("onbranch:**"),
    _include("hasconfig:remote.*.url:**", '[remote "o"]\n\turl = https://x.invalid/y\n'),
    Attack(
        name="config.worktree", settings="[extensions]\n\tworktreeConfig = true\n", beside={"config.worktree": FILTER},
        files=BY_X, control=ADD,
    ),
    Attack(
        name="core.worktree", settings=FILTER + "[core]\n\tworktree = {root}/../elsewhere\n", files=BY_X,
        before="mkdir -p ../elsewhere && cp -r .gitattributes a.txt ../elsewhere",
        control="cd ../elsewhere && echo b >> a.txt && GIT_DIR={root}/.git git add a.txt || true",
    ),
    Attack(
        name="the user's own settings", environment={"HOME": "{root}/../home"}, control="git status",
        before="mkdir -p ../home && printf '[core]\\n\\tfsmonitor = {run}\\n' > ../home/.gitconfig",
    ),
    Attack(
        name="GIT_CONFIG_COUNT", control="git status",
        environment={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "{run}"},
    ),
    Attack(
        name="GIT_CONFIG_PARAMETERS", environment={"GIT_CONFIG_PARAMETERS": "'core.fsmonitor={run}'"},
        control="git status",
    ),
    Attack(name="GIT_EXTERNAL_DIFF", environment={"GIT_EXTERNAL_DIFF": "{run}"}, control=DIFF),
    Attack(
        name="GIT_SSH_COMMAND", environment={"GIT_SSH_COMMAND": "{run}"}, control="git ls-remote x@y:z || true"
    ),
    Attack(
        name="GIT_DIR", environment={"GIT_DIR": "{root}/../other/.git"}, control="git status",
        before="env -u GIT_DIR git init -q ../other && "
        "env -u GIT_DIR git -C ../other config core.fsmonitor {run}",
    ),
    # Layouts.
    Attack(name="a repository in a tree", left=NESTED, control=TWICE),
    Attack(
        name="a repository in a tree, by a file", control=TWICE,
        left=NESTED + " && mv .git ../.kept && echo 'gitdir: ../.kept' > .git",
    ),
    Attack(
        name="a repository in a tree, by a link", control=TWICE,
        left=NESTED + " && mv .git ../.kept && ln -s ../.kept .git",
    ),
    Attack(
        name="a repository in a tree with a monitor", control=TWICE,
        left=NESTED.replace("filter.x.clean", "core.fsmonitor"),
    ),
    Attack(
        name="a submodule with update = !", control="git submodule update --init --force || true",
        before="git init -q ../sub && git -C ../sub {person} commit -q --allow-empty -m s && "
        "git -c protocol.file.allow=always submodule -q add {root}/../sub s && git commit -qam sub && "
        "git config submodule.s.update '!{run}' && git config protocol.file.allow always && "
        "git -C s {person} commit -q --allow-empty -m t",
    ),
    Attack(
        name="a submodule's own settings", control="git status && git diff",
        before="git init -q ../sub && printf '*.txt filter=x\\n' > ../sub/.gitattributes && echo a > ../sub/a.txt && "
        "git -C ../sub add -A && git -C ../sub {person} commit -qm s && "
        "git -c protocol.file.allow=always submodule -q add {root}/../sub s && git commit -qam sub && "
        "git config -f .git/modules/s/config filter.x.clean {run}",
        left="cp -r {root}/.git/modules/s/. s/.git && printf '*.txt filter=x\\n' > s/.gitattributes && "
        "echo c > s/a.txt && touch -t 202001010000 s/a.txt && git config -f s/.git/config --unset core.worktree",
    ),
)  # fmt: skip
