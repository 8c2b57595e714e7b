//! The state that a controller leaves behind for the next one: which nodes and load balancers run, and where.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::ScaleError;
use crate::process::Proof;

/// A node that a driver has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) group: String,
    /// Its process, for drivers that start processes.
    pub(crate) process: Option<Proof>,
    /// Where clients reach it: `host:port`.
    pub(crate) mqtt: String,
    /// Where its HTTP API is: `host:port`.
    pub(crate) http: String,
    /// Where other nodes reach it: `host:port`.
    pub(crate) cluster: String,
    /// Whether the node has served clients: its data is then kept until it was emptied.
    pub(crate) served: bool,
}

/// A load balancer that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BalancerRecord {
    pub(crate) process: Option<Proof>,
    pub(crate) port: u16,
    /// The node in each of its places.
    pub(crate) places: Vec<Option<String>>,
}

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The site file.
    pub(crate) site: PathBuf,
    /// Number of the last action.
    pub(crate) last_action: u64,
    /// Key that nodes of the cluster show each other.
    pub(crate) cluster_key: String,
    /// Token that requests to the API of nodes show.
    pub(crate) token: String,
    pub(crate) nodes: BTreeMap<String, NodeRecord>,
    pub(crate) balancers: BTreeMap<String, BalancerRecord>,
    /// Other resources that were provided.
    pub(crate) provided: Vec<String>,
    /// Thousandths of a processor that each node of a group may use, where a policy has changed that.
    #[serde(default)]
    pub(crate) millicpus: BTreeMap<String, u32>,
    /// Whether the kill switch is on.
    pub(crate) paused: bool,
    /// The controller that runs, or ran last.
    pub(crate) controller: Option<Proof>,
    /// Where its own API is.
    pub(crate) api: Option<String>,
}

/// The name of the site that a file describes, in folders and topics: that of the file, without characters that these do not allow.
pub(crate) fn site_name(site: &Path) -> String {
    let stem = site.file_stem().map_or_else(|| "site".into(), |stem| stem.to_string_lossy());
    stem.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).take(32).collect()
}

/// The folder of one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// The folder of the site that the file at `site`, an absolute path, describes.
    pub fn of(site: &Path) -> Self {
        let safe = site_name(site);
        let digest = Sha256::digest(site.as_os_str().as_encoded_bytes());
        let digest = digest.iter().take(4).fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        Self { dir: root().join(format!("{safe}-{digest:08x}")) }
    }

    /// The folders of all sites that have something running or did not end well.
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir(root()).into_iter().flatten().flatten();
        let mut homes: Vec<Self> =
            entries.map(|entry| Self { dir: entry.path() }).filter(|home| home.file().exists()).collect();
        homes.sort_by(|left, right| left.dir.cmp(&right.dir));
        homes
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn file(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Where the last report is.
    pub(crate) fn report(&self) -> PathBuf {
        self.dir.join("status.json")
    }

    /// Reads the state that is kept, if there is one.
    pub(crate) fn load(&self) -> Result<Option<State>, ScaleError> {
        let path = self.file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ScaleError::file("cannot read", &path, error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            let path = path.display();
            ScaleError::other(format!(
                "{path} is damaged ({error}); end the processes of this site by hand, then remove it"
            ))
        })
    }

    /// Keeps `state`, so that a crash leaves either this state or the one before.
    pub(crate) fn save(&self, state: &State) -> Result<(), ScaleError> {
        let text = serde_json::to_vec_pretty(state).map_err(|error| ScaleError::other(error.to_string()))?;
        self.write(&self.file(), &text)
    }

    /// Writes a private file whole or not at all.
    pub(crate) fn write(&self, path: &Path, text: &[u8]) -> Result<(), ScaleError> {
        let failed = |error| ScaleError::file("cannot write", path, error);
        self.make()?;
        let aside = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside).map_err(failed)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        file.write_all(text).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&aside, path).map_err(failed)
    }

    pub(crate) fn make(&self) -> Result<(), ScaleError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|error| ScaleError::file("cannot make", &self.dir, error))
    }

    /// Removes the folder and all in it.
    pub(crate) fn remove(&self) -> Result<(), ScaleError> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(ScaleError::file("cannot remove", &self.dir, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Keeps every other controller of this site away while the answer lives.
    pub(crate) fn lock(&self) -> Result<File, ScaleError> {
        self.make()?;
        let path = self.dir.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|error| ScaleError::file("cannot open", &path, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(_) => Err(ScaleError::other("a controller of this site runs already; see `sedge scale status`")),
        }
    }
}

/// Where the folders of all sites are: `SEDGE_SCALE_DIR`, or `sedge/scale` in the state directory of the user.
fn root() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(dir) = var("SEDGE_SCALE_DIR") {
        return dir;
    }
    let state = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(std::env::temp_dir).join("sedge").join("scale")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_private_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home { dir: dir.path().join("site") };
        assert_eq!(home.load().unwrap(), None);
        let nodes = [("a-1".to_owned(), NodeRecord { group: "a".to_owned(), ..NodeRecord::default() })].into();
        let state = State { last_action: 7, nodes, ..State::default() };
        home.save(&state).unwrap();
        assert_eq!(home.load().unwrap(), Some(state));
        assert_eq!(fs::metadata(home.file()).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(home.file(), "{").unwrap();
        assert!(home.load().unwrap_err().to_string().contains("is damaged"));
        let lock = home.lock().unwrap();
        assert!(home.lock().is_err());
        drop(lock);
        home.remove().unwrap();
        assert_eq!(home.load().unwrap(), None);
    }

    #[test]
    fn each_site_file_has_a_folder_of_its_own() {
        let (one, two) = (Home::of(Path::new("/a/site.yaml")), Home::of(Path::new("/b/site.yaml")));
        assert!(one != two && one.dir().file_name().unwrap().to_str().unwrap().starts_with("site-"));
    }
}
