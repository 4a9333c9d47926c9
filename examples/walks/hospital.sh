#!/usr/bin/env bash
# A hospital's engineer: look at what would leave, join beside controls, get killed, go on, take the model out and use it.
# Run it in an empty folder, with `repshare` installed: bash hospital.sh URL TOKEN-FILE PARTY.PY:FUNCTION
set -euo pipefail
url=$1 token=$2 party=$3

repshare join "$url" --party "$party" --token-file "$token" --dry-run --agreement agreement.json

repshare join "$url" --party "$party" --token-file "$token" --state mine --compare &
joined=$!
until [ -s mine/client.state ]; do sleep 0.1; done
kill -KILL "$joined"  # the machine goes down
wait "$joined" || true
done_before=$(wc -l < mine/records.jsonl)
repshare join "$url" --party "$party" --token-file "$token" --state mine --compare --rounds $((done_before + 2))

repshare report mine --output mine.html
repshare export mine --to classifier.onnx --party "$party"
repshare predict mine --party "$party" --output predictions.csv
