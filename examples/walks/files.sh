#!/usr/bin/env bash
# Three hospitals learn together without a network: each writes a part, somebody adds up, each receives the total.
# Run it in a folder with north/, south/ and east/, which have patients.csv, and others.csv:
# bash files.sh COLUMNS.CSV PARTY.PY
set -euo pipefail
columns=$1 party=$2

repshare relay tasks create cells --columns "$columns" --class-names benign malignant --space fourier features=256
repshare relay tasks describe cells > cells.json
mkdir parts
for round in 1 2; do
    for name in north south east; do
        repshare part --party "$party:$name" --agreement cells.json --accept-exposure --output "parts/$name.safetensors"
    done
    repshare total parts/*.safetensors --agreement cells.json --output total.safetensors
    for name in north south east; do
        repshare receive total.safetensors --party "$party:$name" --agreement cells.json
    done
done
repshare predict repshare-files-north --input others.csv --output predictions.csv
