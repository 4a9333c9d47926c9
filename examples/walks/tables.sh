#!/usr/bin/env bash
# Three hospitals with a table each learn together: in a masked group, with a budget, as --samples-expected chooses.
# Run it in a folder with north/, south/ and east/, which have patients.csv and others.csv each:
# bash tables.sh COLUMNS.CSV PARTY.PY:FUNCTION PORT
set -euo pipefail
columns=$1 party=$2 url=http://127.0.0.1:$3

repshare relay tasks create cells --columns "$columns" --class-names benign malignant \
    --samples-expected 272 --members 3 --class-members 2
repshare relay tasks describe cells > agreement.json
for name in north south east; do
    repshare relay invite "$name" --task cells --out "$name/token"
done
repshare relay serve --port "$3" &
relay=$!
trap 'kill $relay' EXIT
until curl --silent --fail --output /dev/null "$url/healthz"; do sleep 0.2; done

joined=()
for name in north south east; do
    cd "$name"
    repshare join --party "$party" --agreement ../agreement.json --dry-run \
        --epsilon 1.3 --adjacency add-remove --noise-shares 3
    repshare join "$url" --party "$party" --token-file token --agreement ../agreement.json --state state --compare \
        --epsilon 1.3 --adjacency add-remove --noise-shares 3 --rounds 2 > joined.txt &
    joined+=($!)
    cd ..
done
for each in "${joined[@]}"; do wait "$each"; done

for name in north south east; do
    tail -n 1 "$name/joined.txt"
done
repshare predict north/state --input north/others.csv --output predictions.csv
