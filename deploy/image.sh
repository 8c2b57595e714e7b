#!/usr/bin/env bash
# Makes the image of deploy/Dockerfile from a static binary built here; pulls nothing.
# Usage: deploy/image.sh [ARCHITECTURE]     amd64 or arm64; default: this machine's
# Leaves target/sedge-image-ARCHITECTURE.tar and loads it as sedge:latest if a Docker engine answers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh

case "${1:-$(uname -m)}" in
  amd64 | x86_64) architecture=amd64 target=x86_64-unknown-linux-musl ;;
  arm64 | aarch64) architecture=arm64 target=aarch64-unknown-linux-musl ;;
  *) echo "unknown architecture $1: use amd64 or arm64" >&2; exit 2 ;;
esac
need_commands cc=gcc python3=python3
need_rust
if ! rustc --print target-libdir --target "$target" 2>/dev/null | xargs -I{} test -d {}; then
  rustup target add "$target" || { echo "the Rust target $target is missing; run: rustup target add $target" >&2; exit 1; }
fi
# All code is Rust, so the linker that comes with Rust is enough for a foreign architecture.
linker=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER
env "$linker=rust-lld" cargo build --release --locked --quiet --bin sedge --target "$target"
archive=${CARGO_TARGET_DIR:-target}/sedge-image-$architecture.tar
python3 deploy/image_archive.py --binary "${CARGO_TARGET_DIR:-target}/$target/release/sedge" --architecture "$architecture" --output "$archive"
if command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
  docker load --quiet --input "$archive"
else
  echo "no Docker engine answers here; load it elsewhere with: docker load --input $archive"
fi
