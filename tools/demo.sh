#!/usr/bin/env bash
# The whole product on this machine, without a GPU and without a download of weights: the photographs that scikit-image and
# scikit-learn ship, a tiny model of SD 1.5's topology with seeded random weights, four processes.
#   tools/demo.sh [FOLDER]      results go to FOLDER (default: demo)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-demo}
started=$(date +%s)

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "1. Set up (nothing to do when it is done)"
tools/setup.sh
python=${STAGECRAFT_VENV:-.venv}/bin/python
bin=build/release/bin
mkdir -p "$out"

say "2. Data: photographs with Canny hints; CLIP's vocabulary"
[ -f "$out/photos/prompt.json" ] || "$python" tools/make_photos.py "$out/photos" --size 128x192
[ -f "$out/tokenizer/vocab.json" ] || "$python" tools/make_clip_vocab.py "$out/tokenizer"

say "3. partition: measure every block, split the model over four ranks"
rm -f "$out/costs.json"  # another build's would be taken for this one's
show $bin/partition --profile --config configs/train/tiny_demo.yaml --cluster configs/clusters/local_cpu_4.yaml \
  --cost-table "$out/costs.json" -o "$out/plan.yaml"

say "4. pipetrain: four processes train ControlNet"
rm -rf "$out/run"
show $bin/pipetrain --plan "$out/plan.yaml" --config configs/train/tiny_demo.yaml --init-random 1 \
  --tokenizer "$out/tokenizer" --data "$out/photos" --out "$out/run" --evaluate 4

say "5. A page of it for a browser, and the simulated step for ui.perfetto.dev"
show $bin/partition report "$out/plan.yaml" --measured "$out/run/measured.json" --cost-table "$out/costs.json" \
  --html "$out/page.html" --trace "$out/trace.json" | sed -n '1p; /^page: /p; /^trace: /p'

say "6. Done in $(($(date +%s) - started)) s. Your own next commands"
cat <<'NEXT'
What would four RTX 3090 hold? (planning needs no GPU; training on GPUs is not built yet)
  build/release/bin/partition --config configs/train/sd15_controlnet.yaml --cluster configs/clusters/4x3090.yaml -o plan_3090.yaml
Train SD 1.5's ControlNet at 256 px with four CPU processes (needs about 12 GiB of memory):
  build/release/bin/partition --config configs/train/sd15_controlnet.yaml --precision fp32 --width 256 --height 256 \
    --cluster configs/clusters/local_cpu_4.yaml -o plan.yaml
  build/release/bin/pipetrain --plan plan.yaml --config configs/train/sd15_controlnet.yaml \
    --weights FOLDER_OF_SD15 --data FOLDER_WITH_PROMPT_JSON --out runs/first
NEXT
