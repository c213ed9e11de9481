#!/bin/sh
# Exit 0 if the Java that Spark would take is 17 or newer; else say in one line what to install.
need=17
advice="install a Java $need (or newer) runtime, for example 'apt install openjdk-$need-jre-headless' or 'brew install openjdk@$need'"

fail() {
    echo "feed_assets needs Java $need or newer: $1; $advice." >&2
    exit 1
}

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
where=${JAVA_HOME:+ in JAVA_HOME ($JAVA_HOME)}
command -v "$java" >/dev/null 2>&1 || fail "found none${where:- on PATH}"
said=$("$java" -version 2>&1) || fail "'$java -version' fails"
# The line may follow others ("Picked up JAVA_TOOL_OPTIONS"); 1.8.0_402 is Java 8, 25-ea is Java 25.
version=$(printf '%s\n' "$said" | sed -n 's/^[^"]* version "\([^"]*\)".*/\1/p' | head -n 1)
major=$(printf '%s\n' "$version" | sed -e 's/^1\.//' -e 's/[^0-9].*//')
[ -n "$major" ] || fail "'$java -version' names no version"
[ "$major" -ge "$need" ] || fail "found $version$where"
