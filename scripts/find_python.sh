#!/bin/sh
# Print the first of python3, python3.13, python3.12, python3.11 that feed_assets runs on; else say what to install.
found=
for name in python3 python3.13 python3.12 python3.11; do
    # A name on PATH may still not run (a version manager's shim) or hide another interpreter: ask it.
    answer=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null) || continue
    case $answer in
        3.11\ * | 3.12\ * | 3.13\ *) echo "${answer#* }" && exit 0 ;;
        *) found="$found $name is ${answer%% *}" ;;
    esac
done
echo "feed_assets needs Python 3.11, 3.12 or 3.13: found${found:- none on PATH}; install one, for example 'apt install python3 python3-venv' or 'brew install python@3.13'." >&2
exit 1
