#!/usr/bin/env bash
# A researcher's first hour: her own table, her own method beside two others, more seeds, a report.
# Run it in an empty folder, with `repshare` installed: bash researcher.sh
set -euo pipefail

# Her data: a table with a column of labels. This one comes with scikit-learn.
python -c 'from sklearn.datasets import load_breast_cancer as load
table = load(as_frame=True)
table.frame.assign(target=table.target_names[table.target]).to_csv("tumours.csv", index=False)'

own=$(cd "$(dirname "$0")/.." && pwd)/fedprox.py:PROX  # her method, to begin with
setting="--dataset tumours.csv --standardise --clients 4 --partition dirichlet --alpha 0.5 --rounds 6 --name first"
repshare compare $setting --methods IL FL "$own"
repshare compare $setting --methods IL FL "$own" CA CS --seeds 2 --resume  # it grows
repshare report runs/first --output first.html
