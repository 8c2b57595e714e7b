//! Files and directories that only the user of the process may read, whatever its umask is: a reader of a journal can read every message in it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::process::getuid;

/// Mode bits of the group and of everybody else.
const OTHERS: u32 = 0o077;

/// Makes a directory (0700) and all above it, if they are not there. One that is there stays as it is.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes or empties a file (0600).
pub(crate) fn make_file(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Closes a directory of the node's own that others can look into. Returns whether it was open and belongs to this user.
pub(crate) fn close_dir(dir: &Path) -> io::Result<bool> {
    let found = fs::metadata(dir)?;
    let is_open = found.mode() & OTHERS != 0 && found.uid() == getuid().as_raw();
    if is_open {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(is_open)
}

/// Whether others than the owner may list or search a directory.
pub(crate) fn is_open_to_others(dir: &Path) -> io::Result<bool> {
    Ok(fs::metadata(dir)?.mode() & OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    /// SEC
    #[test]
    fn files_and_directories_are_closed_to_others() {
        let root = tempfile::tempdir().unwrap();
        let (dir, file) = (root.path().join("a/b"), root.path().join("file"));
        make_dir(&dir).unwrap();
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        make_file(&file).unwrap();
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert!(is_open_to_others(&dir).unwrap());
        assert!(close_dir(&dir).unwrap());
        assert!(!close_dir(&dir).unwrap());
        assert_eq!(mode(&dir), 0o700);
    }
}
