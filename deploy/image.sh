#!/usr/bin/env bash
# Makes the image of deploy/Dockerfile from a static binary built here; pulls nothing.
# Usage: deploy/image.sh [ARCHITECTURE]     amd64 or arm64; default: this machine's
#        deploy/image.sh index [FILE]       one archive with the images for amd64, arm64 and arm/v7, of the programs in target/packages
# Leaves target/sedge-image-ARCHITECTURE.tar and loads it as sedge:latest if a Docker engine answers; "index" leaves
# target/packages/sedge-VERSION-image.tar (OCI), and runs deploy/packages/build first for what is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh

index() {
  local version architecture name binaries=()
  need_commands python3=python3 dpkg-deb=dpkg
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  for architecture in amd64 arm64 armhf; do
    [ -e "target/packages/sedge_${version}_$architecture.deb" ] || deploy/packages/build "$architecture"
    name=${architecture/armhf/arm}
    dpkg-deb --fsys-tarfile "target/packages/sedge_${version}_$architecture.deb" | tar -xO ./usr/bin/sedge >"$work/$name"
    cp "target/packages/sedge-$version-$architecture.cdx.json" "$work/$name.cdx.json"
    cp "target/packages/sedge-$version-$architecture.provenance.json" "$work/$name.provenance.json"
    binaries+=("$name=$work/$name")
  done
  python3 deploy/image_archive.py --index "${binaries[@]}" --output "${1:-target/packages/sedge-$version-image.tar}"
}

case "${1:-$(uname -m)}" in
  index) shift; index "$@"; exit ;;
  amd64 | x86_64) architecture=amd64 target=x86_64-unknown-linux-musl ;;
  arm64 | aarch64) architecture=arm64 target=aarch64-unknown-linux-musl ;;
  *) echo "unknown architecture $1: use amd64, arm64 or index" >&2; exit 2 ;;
esac
# One crate (ring) has C code: the machine's own architecture takes musl-gcc, a foreign one clang.
if [ "$(uname -m)" = "${target%%-*}" ]; then
  need_commands cc=gcc python3=python3 musl-gcc=musl-tools
  compiler=musl-gcc
else
  need_commands cc=gcc python3=python3 clang=clang
  compiler=clang
fi
need_rust
if ! rustc --print target-libdir --target "$target" 2>/dev/null | xargs -I{} test -d {}; then
  rustup target add "$target" || { echo "the Rust target $target is missing; run: rustup target add $target" >&2; exit 1; }
fi
# The linker that comes with Rust does for every architecture.
linker=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER
env "$linker=rust-lld" "CC_${target//-/_}=$compiler" cargo build --release --locked --quiet --no-default-features --bin sedge --target "$target"
archive=${CARGO_TARGET_DIR:-target}/sedge-image-$architecture.tar
python3 deploy/image_archive.py --binary "${CARGO_TARGET_DIR:-target}/$target/release/sedge" --architecture "$architecture" --output "$archive"
if command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
  docker load --quiet --input "$archive"
else
  echo "no Docker engine answers here; load it elsewhere with: docker load --input $archive"
fi
