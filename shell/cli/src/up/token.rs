//! The token of a cluster of `sedge up`, for the commands of the same user. It is kept in the directory of the cluster; a note by HTTP port, where
//! commands find it without a flag, says in which one.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::cluster::random_hex;
use super::plan::{NodePlan, state_dir};
use crate::failure::Failure;

/// It has 128 bits.
const WORDS: usize = 2;
const FILE: &str = "api-token";

/// A token that can be found. Dropping it makes it be forgotten.
#[derive(Debug)]
pub(super) struct Token {
    text: String,
    dir: PathBuf,
    file: PathBuf,
    ports: Vec<u16>,
    kept: bool,
}

impl Token {
    /// Makes one for the cluster in `dir`; `None`: the surroundings name one.
    pub(super) fn make(dir: &Path, plans: &[NodePlan]) -> Result<Option<Self>, Failure> {
        let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if named("SEDGE_HTTP__TOKEN") || named("SEDGE_HTTP__TOKEN_FILE") {
            return Ok(None);
        }
        let file = dir.join(FILE);
        let ports = plans.iter().map(|plan| plan.http).collect();
        let token = Self { text: random_hex(WORDS)?, dir: dir.to_owned(), file, ports, kept: false };
        let failed =
            |path: &Path, error: io::Error| Failure::cannot_start(format!("cannot write {}: {error}", path.display()));
        private(&token.file, token.text.as_bytes()).map_err(|error| failed(&token.file, error))?;
        for port in &token.ports {
            // Without a place for it, commands have to be told.
            let _ = private(&note(*port), token.file.as_os_str().as_bytes());
        }
        Ok(Some(token))
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Lets it be found when this process is gone.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if !self.kept {
            forget(&self.dir, self.ports.iter().copied());
        }
    }
}

/// Removes the token of the cluster in `dir` with these HTTP ports.
pub(super) fn forget(dir: &Path, ports: impl Iterator<Item = u16>) {
    let file = dir.join(FILE);
    for note in ports.map(note).filter(|note| own(note).is_some_and(|path| path == file.as_os_str().as_bytes())) {
        let _ = fs::remove_file(note);
    }
    let _ = fs::remove_file(file);
}

/// The token for the API at `base`, if it is that of a cluster that this user has started on this machine.
pub(crate) fn known(base: &str) -> Option<String> {
    let authority = base.strip_prefix("http://")?.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':')?;
    if !["127.0.0.1", "localhost", "[::1]"].contains(&host) {
        return None;
    }
    let file = PathBuf::from(std::ffi::OsString::from_vec(own(&note(port.parse().ok()?))?));
    String::from_utf8(own(&file)?).ok()
}

/// Where it is noted which file has the token for this port.
fn note(port: u16) -> PathBuf {
    state_dir().join("api").join(port.to_string())
}

/// Content of a file, if the file is this user's: a file of somebody else says nothing.
fn own(path: &Path) -> Option<Vec<u8>> {
    let ours = fs::metadata(path).ok()?.uid() == rustix::process::geteuid().as_raw();
    if ours { fs::read(path).ok() } else { None }
}

/// Writes a file that only this user can read, whatever the umask is and whatever was there.
fn private(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_have_a_known_token() {
        for base in [
            "http://10.0.0.7:8080",
            "http://localhost.evil.example:8080",
            "http://127.0.0.1",
            "https://127.0.0.1:1",
            "x",
        ] {
            assert_eq!(known(base), None, "{base}");
        }
    }

    #[test]
    fn a_file_is_for_its_user_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/api-token");
        private(&path, b"longer than what comes").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        private(&path, b"token").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(own(&path).unwrap(), b"token");
        assert_eq!(own(&dir.path().join("none")), None);
    }
}
