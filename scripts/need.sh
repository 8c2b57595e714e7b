# Shell functions to make sure that what a script needs is there. Sourced, not run.

# Debian or Ubuntu packages that are missing get installed where that is possible without asking; otherwise they are named.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "missing packages; please run: sudo apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo -n)
  fi
  echo "installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null || return 1
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# need_commands COMMAND=PACKAGE ...: as need_packages, but only for commands that are not on the path.
need_commands() {
  local pair packages=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || [ -x "/usr/sbin/${pair%%=*}" ] || packages+=("${pair#*=}")
  done
  [ ${#packages[@]} -eq 0 ] && return 0
  if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "missing programs; please install: ${packages[*]}" >&2
    return 1
  fi
  need_packages "${packages[@]}"
}

# Rust of at least the version that Cargo.toml asks for.
need_rust() {
  [ -r "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
  if [ -z "$have" ]; then
    echo "Rust is missing: install Rust $wanted or newer from https://rustup.rs and run this again" >&2
    return 1
  fi
  if [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "Rust $have is too old: this needs $wanted or newer; run: rustup update stable" >&2
    return 1
  fi
}
