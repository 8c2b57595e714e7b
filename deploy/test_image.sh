#!/usr/bin/env bash
# Makes the image and runs its only program with nothing around it: an empty root directory, another user, no shell.
# Usage: deploy/test_image.sh [--stand-in]     --stand-in: a program of three lines instead of Sedge, which takes no minutes to build
set -euo pipefail
cd "$(dirname "$0")/.."

case "$(uname -m)" in x86_64) architecture=amd64 ;; *) architecture=arm64 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${1:-}" = --stand-in ]; then
  archive=$work/image.tar
  echo 'int main(int count, char **words) { return count < 2; }' >"$work/program.c"
  cc -static -o "$work/program" "$work/program.c"
  python3 deploy/image_archive.py --binary "$work/program" --architecture "$architecture" --output "$archive"
else
  if ! rustup target add "$(uname -m)-unknown-linux-musl" >/dev/null 2>&1; then
    echo "SKIP image: rustup cannot install the target $(uname -m)-unknown-linux-musl here"
    exit 0
  fi
  # The image is tested, not how fast the program in it is.
  export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
  deploy/image.sh
  archive=${CARGO_TARGET_DIR:-target}/sedge-image-$architecture.tar
fi
mkdir "$work/root"
tar -xf "$archive" -C "$work"
tar -xf "$work"/*/layer.tar -C "$work/root"
python3 - "$work" <<'CHECK'
import json, sys
from pathlib import Path
work = Path(sys.argv[1])
manifest = json.loads((work / "manifest.json").read_text())[0]
config = json.loads((work / manifest["Config"]).read_text())["config"]
assert config["Healthcheck"]["Test"] == ["CMD", "/sedge", "health"], config
assert config["Entrypoint"] == ["/sedge"] and config["Cmd"] == ["serve"] and config["User"] == "65532:65532", config
assert sorted(entry.name for entry in (work / "root").iterdir()) == ["data", "sedge"]
CHECK
if [ "$(id -u)" -eq 0 ]; then
  chroot --userspec=65532:65532 "$work/root" /sedge --version
  chroot --userspec=65532:65532 "$work/root" /sedge config check
else
  "$work/root/sedge" --version
fi
echo "image: 1 passed, 0 failed"
