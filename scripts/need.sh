# Shell functions to make sure that what a script needs is there. Sourced, not run.

# With SEDGE_NO_INSTALL=1 nothing is installed; what is missing is named.

# may_install WHAT COMMAND: whether it may be installed; says what is done, or what to do.
may_install() {
  if [ "${SEDGE_NO_INSTALL:-}" = 1 ]; then
    echo "$1 is missing, and SEDGE_NO_INSTALL=1 forbids to install it; please run: $2" >&2
    return 1
  fi
  echo "installing $1 (SEDGE_NO_INSTALL=1 forbids that): $2"
}

# Debian or Ubuntu packages that are missing get installed where that is possible without asking; otherwise they are named.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  may_install "${missing[*]}" "apt-get install ${missing[*]}" || return 1
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "missing packages; please run: sudo apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo -n)
  fi
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

# The toolchain that rust-toolchain.toml names: through rustup, which is installed for this user alone if there is no Rust at all. A Rust
# without rustup, from the system's packages for example, is used if it is new enough.
need_rust() {
  [ -r "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
  local pinned least have
  pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  if ! command -v rustup >/dev/null 2>&1; then
    have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    if [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$least" "$have" | sort -V | head -n 1)" = "$least" ]; then
      return 0
    fi
    may_install "Rust $pinned (in ~/.rustup and ~/.cargo)" "curl -sSf https://sh.rustup.rs | sh" || return 1
    need_commands curl=curl || return 1
    local script
    script=$(curl --proto '=https' --tlsv1.2 -sSf --retry 3 https://sh.rustup.rs) && [ -n "$script" ] || {
      echo "rustup cannot be fetched; install Rust $least or newer in another way and run this again" >&2
      return 1
    }
    sh -s -- -y --quiet --no-modify-path --profile minimal --default-toolchain none <<<"$script" || return 1
    . "$HOME/.cargo/env"
  fi
  # The same version by another name will do: nothing has to be fetched.
  if ! has_toolchain "$pinned"; then
    if has_toolchain stable && [ "$(rustup run stable rustc --version | cut -d ' ' -f 2)" = "$pinned" ]; then
      export RUSTUP_TOOLCHAIN=stable
      return 0
    fi
    may_install "the Rust toolchain $pinned" "rustup toolchain install $pinned --profile minimal --component clippy,rustfmt" || return 1
    rustup toolchain install "$pinned" --profile minimal --component clippy --component rustfmt --no-self-update || return 1
  fi
}

# has_toolchain NAME: whether rustup has it, with what the tests need.
has_toolchain() {
  rustup run "$1" cargo clippy --version >/dev/null 2>&1 && rustup run "$1" cargo fmt --version >/dev/null 2>&1
}
