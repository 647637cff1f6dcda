#!/bin/sh
# Brings Debian's Chromium, for the tests of the page. As root it is installed. Any other user gets it and the packages
# that it lacks unpacked into a folder, with a program that starts it.
#
#     fetch_chromium.sh FOLDER PROGRAM
set -eu
folder=$1 program=$2
mkdir -p "$folder" && folder=$(cd "$folder" && pwd)

if [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -qq -y --no-install-recommends chromium || {
    apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium
  }
  rmdir "$folder" 2>/dev/null || true
  exit
fi

# Lists of its own, if those of the machine are missing: only root may renew them.
lists=""
missing() { apt-get $lists -qq --simulate --no-install-recommends install chromium | sed -n 's/^Inst \([^ ]*\) .*/\1/p'; }
packages=$(missing) && [ -n "$packages" ] || {
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
  lists="-o Dir::State::lists=$folder/apt/lists -o Dir::Cache=$folder/apt -o Debug::NoLocking=1"
  apt-get $lists -qq update
  packages=$(missing)
}
mkdir -p "$folder/packages" "$folder/root"
( cd "$folder/packages" && apt-get $lists -qq download $packages )
for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
rm -rf "$folder/packages" "$folder/apt"

libraries=$(find "$folder/root/lib" "$folder/root/usr/lib" -name 'lib*.so*' -exec dirname {} + 2>/dev/null | sort -u |
  paste -sd: -)
cat > "$folder/fonts.conf" <<END
<?xml version="1.0"?>
<fontconfig>
  <dir>$folder/root/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>$folder/fonts</cachedir>
</fontconfig>
END
cat > "$program" <<END
#!/bin/sh
export LD_LIBRARY_PATH="$libraries:$folder/root/usr/lib/chromium"
export FONTCONFIG_FILE="$folder/fonts.conf"
exec "$folder/root/usr/lib/chromium/chromium" "\$@"
END
chmod 755 "$program"
