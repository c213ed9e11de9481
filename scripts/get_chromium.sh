#!/bin/sh
# Install a Chromium for the tests of the web UI. If that fails, only warn: the tests are skipped then.
# On Debian it comes from apt; elsewhere from Playwright, with the system libraries that it needs (as root).
path=$(command -v chromium || command -v chromium-browser || command -v google-chrome) && echo "chromium: $path" && exit 0
playwright=${PLAYWRIGHT:-.venv/bin/playwright}
deps=
[ "$(id -u)" = 0 ] && deps=--with-deps

apt() { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq "$@"; }
is_debian() { [ -n "$deps" ] && grep -q '^ID=debian' /etc/os-release 2>/dev/null; }
from_apt() { is_debian && apt update && apt install --no-install-recommends -y chromium fonts-liberation; }
own() { timeout 300 "$playwright" install $deps chromium; }

log=$(mktemp)
if from_apt >"$log" 2>&1 </dev/null || own >>"$log" 2>&1 </dev/null; then
    echo "chromium: installed"
else
    tail -n 3 "$log"
    echo "chromium: could not be installed, so the tests of the web UI will be skipped"
fi
rm -f "$log"
