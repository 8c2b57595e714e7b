//! Why a node does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a node does not start, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken by another program.
    #[error("{key}: {address} is in use by another program; stop it, or choose another port with {key} or {flag}")]
    PortInUse {
        /// Key with the port.
        key: &'static str,
        /// Flag with the port.
        flag: &'static str,
        /// What was tried.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{key}: cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// Key with the address.
        key: &'static str,
        /// What was tried.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A listener of its own section cannot listen.
    #[error("listener.{name}: cannot listen on {address}: {source}{}", hint(source))]
    Listener {
        /// Its name.
        name: String,
        /// What was tried.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// A listener's certificates cannot be used.
    #[error("listener.{name}.{key}: {what}")]
    Certificates {
        /// Its name.
        name: String,
        /// Key of the file.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// What links between nodes are to be encrypted with cannot be used.
    #[error("cluster.{key}: {what}")]
    ClusterCertificates {
        /// Key of the file.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The data directory cannot be used.
    #[error("node.data_dir: cannot use {}: {source}", path.display())]
    DataDir {
        /// File or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process works in the data directory.
    #[error("node.data_dir: {} is in use by another sedge process; give each node a directory of its own", path.display())]
    DataDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// What is in the journal's directory cannot be explained, and is not touched.
    #[error("node.data_dir: {}: {what}", path.display())]
    Journal {
        /// The directory.
        path: PathBuf,
        /// What is there, and what to do.
        what: String,
    },
    /// A file in the data directory does not hold what it should.
    #[error("node.data_dir: {} holds {found:?} instead of {wanted}; restore it, or remove it to start as a new node", path.display())]
    DataDirContent {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What it should.
        wanted: &'static str,
    },
    /// A setting that only the machine could judge.
    #[error("{key}: {what}")]
    Setting {
        /// Which key.
        key: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The operating system refused something that every node needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl StartError {
    /// What a program exits with when its node does not start.
    pub const EXIT_CODE: u8 = 3;

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse {
        "; stop the program that listens there, or choose another place"
    } else if error.kind() == io::ErrorKind::AddrNotAvailable {
        "; this machine has no such address"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "; ports below 1024 need a privilege, choose a higher one"
    } else {
        ""
    }
}
