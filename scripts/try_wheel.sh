#!/usr/bin/env bash
# Test the result of `pip install feed-assets`: build the wheel, install it into an empty environment in a temporary
# folder, with the newest versions that it allows, and run the commands that `feed-assets init` names there. From then on
# this clone is not used. It takes a minute or two if uv has cached the packages, and needs 1.2 GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
clone=$PWD
uv=$clone/.cache/uv/bin/uv
[ -x "$uv" ] || { echo "wheel: found no uv in .cache: expected that of the Makefile. Run \`make check\` first." >&2; exit 1; }
[ -n "${HOME:-}" ] || export UV_CACHE_DIR="${UV_CACHE_DIR:-$PWD/.cache/uv-cache}"
unset VIRTUAL_ENV PYTHONPATH UV_PROJECT_ENVIRONMENT
place=$(mktemp -d "${TMPDIR:-/tmp}/feed-assets-wheel.XXXXXX")
ui=
clean() {
  [ -z "$ui" ] || { kill "$ui" 2>/dev/null && wait "$ui" || true; }
  rm -rf "$place"
}
trap clean EXIT
began=$SECONDS

say() { echo "wheel: $* ($((SECONDS - began)) s)"; }
# A user's shell: the new environment first on PATH, a home folder of its own, and no FEED_ASSETS_ setting.
user=(env -i PATH="$place/venv/bin:$PATH" HOME="$place/home" TMPDIR="$place/tmp" LANG=C.UTF-8 ${JAVA_HOME:+JAVA_HOME="$JAVA_HOME"})
# Run a command; print its output only if it fails.
quietly() { "$@" >"$place/log" 2>&1 </dev/null || { cat "$place/log"; say "FAILED: ${*: -3}" >&2; exit 1; }; }

mkdir "$place/home" "$place/tmp" "$place/work"
quietly "$uv" build --wheel --out-dir "$place/dist" .
description='
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
text = wheel.read(next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))).decode()
links = re.findall(r"\]\(([^)]+)\)", text)
sys.exit(0 if len(links) > 20 and all(each.startswith("https://") for each in links) else "relative links in METADATA")'
quietly "$(scripts/find_python.sh)" -c "$description" "$place"/dist/*.whl
quietly "$uv" venv --python "$(scripts/find_python.sh)" "$place/venv"
quietly "$uv" pip install --python "$place/venv/bin/python" "$place"/dist/*.whl
say "installed $(basename "$place"/dist/*.whl)"
"${user[@]}" python -I scripts/installed_size.py

cd "$place/work"
quietly "${user[@]}" feed-assets --help
"${user[@]}" feed-assets init shop
# Built by uv in the clone: its pyproject.toml says whose certificates uv trusts.
(cd "$clone" && quietly "$uv" pip install --python "$place/venv/bin/python" --group "$place/work/shop/pyproject.toml:dev")
cd shop
case $("${user[@]}" python -P -c 'import feed_assets; print(feed_assets.__file__)') in
  "$place"/venv/*) ;;
  *) say "FAILED: feed_assets is not that of the wheel" >&2; exit 1 ;;
esac
"${user[@]}" feed-assets run --until-idle 2>"$place/log" | tee "$place/said" || { cat "$place/log"; exit 1; }
[ "$(grep -c '^built   shop/sold, shop/sold_rejects 2025-06-0[12]: ' "$place/said")" = 2 ] ||
  { cat "$place/log"; say "FAILED: expected the sample's two days to be built" >&2; exit 1; }
say "built"
quietly "${user[@]}" feed-assets feed verify shop/sold/v1.0 2025-06-01
quietly "${user[@]}" pytest
say "tested: $(tail -n 1 "$place/log" | tr -d =)"

# A browser that keeps the cookie which the address gives it.
visit='
import sys, urllib.request as r
assert b"Dagster" in r.build_opener(r.HTTPCookieProcessor()).open(sys.argv[1]).read()'

# The web UI answers at the address that it prints, and ends on a signal.
port=$("${user[@]}" python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"${user[@]}" feed-assets ui --port "$port" >"$place/ui" 2>&1 </dev/null &
ui=$!
for _ in $(seq 240); do
  address=$(sed -n 's/^web UI: \([^ ]*\) .*/\1/p' "$place/ui")
  [ -z "$address" ] && kill -0 "$ui" 2>/dev/null || break
  sleep 1
done
[ -n "$address" ] && quietly "${user[@]}" python -c "$visit" "$address" ||
  { cat "$place/ui"; say "FAILED: the web UI does not answer" >&2; exit 1; }
kill "$ui"
wait "$ui" || true
ui=
grep -q "all ended" "$place/ui" || { cat "$place/ui"; say "FAILED: the web UI did not end in order" >&2; exit 1; }
say "web UI: it answered, and has ended"
