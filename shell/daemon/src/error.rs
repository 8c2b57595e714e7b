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
        /// The address that is in use.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{key}: cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// Key with the address.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// A listener of its own section cannot listen.
    #[error("listener.{name}: cannot listen on {address}: {source}{}", hint(source))]
    Listener {
        /// Name of the listener.
        name: String,
        /// The address.
        address: String,
        /// The I/O error.
        source: io::Error,
    },
    /// A listener's certificates cannot be used.
    #[error("listener.{name}.{key}: {what}")]
    Certificates {
        /// Name of the listener.
        name: String,
        /// Key of the file.
        key: &'static str,
        /// Fault of the file.
        what: String,
    },
    /// A file for the encryption of links between nodes cannot be used.
    #[error("cluster.{key}: {what}")]
    ClusterCertificates {
        /// Key of the file.
        key: &'static str,
        /// Fault of the file.
        what: String,
    },
    /// The data directory cannot be used.
    #[error("node.data_dir: cannot use {}: {source}", path.display())]
    DataDir {
        /// File or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Another process works in the data directory.
    #[error("node.data_dir: {} is in use by another sedge process; give each node a directory of its own", path.display())]
    DataDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// The content of the journal's directory cannot be explained, and is not touched.
    #[error("node.data_dir: {}: {what}", path.display())]
    Journal {
        /// The directory.
        path: PathBuf,
        /// The content, and the remedy.
        what: String,
    },
    /// A file in the data directory has a wrong content.
    #[error("node.data_dir: {} holds {found:?} instead of {wanted}; restore it, or remove it to start as a new node", path.display())]
    DataDirContent {
        /// The file.
        path: PathBuf,
        /// Content of the file.
        found: String,
        /// Expected content.
        wanted: &'static str,
    },
    /// A setting that only the machine could judge.
    #[error("{key}: {what}")]
    Setting {
        /// The key.
        key: &'static str,
        /// Fault of the setting.
        what: String,
    },
    /// The operating system refused something that every node needs.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The I/O error.
        source: io::Error,
    },
}

impl StartError {
    /// Exit code of a program whose node does not start.
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
