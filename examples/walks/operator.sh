#!/usr/bin/env bash
# An operator: a relay with TLS, invitations, a client put out, a backup, a restore.
# Run it in an empty folder, with `repshare` and openssl installed: bash operator.sh PORT
set -euo pipefail
port=$1
export REPSHARE_DB=$PWD/relay.db

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -keyout relay.key -out relay.pem \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2> /dev/null
serve() {
    repshare relay serve --port "$port" --certificate relay.pem --key relay.key &
    relay=$!
    trap 'kill $relay' EXIT
    until curl --silent --fail --cacert relay.pem "https://localhost:$port/healthz" > /dev/null; do sleep 0.1; done
}

repshare relay tasks create scans --input-shape 1 8 8 --input-range 0 255 --class-names healthy ill
repshare relay invite olga --role viewer --out olga.token
serve
repshare relay invite alice --task scans --out alice.token
repshare relay invite bob --task scans --out bob.token
repshare relay revoke bob --task scans --withdraw
repshare relay backup monday.db
kill "$relay" && wait "$relay" || true

repshare relay restore monday.db --replace
repshare relay check
serve
repshare relay tasks list
kill "$relay" && wait "$relay" || true
trap - EXIT
