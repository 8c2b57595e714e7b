//! Changes of a password file by `sedge passwd` and the HTTP API.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use super::passwords::PasswordFile;

/// Objection to a user name; `None`: the name is valid.
pub fn wrong_user(user: &str) -> Option<&'static str> {
    let is_wrong = user.is_empty() || user.contains([':', '\n', '\r', '\0']) || user.starts_with('#');
    is_wrong.then_some("a user name is not empty, has no ':' and no line end, and does not start with '#'")
}

/// A random salt.
pub fn salt() -> Result<[u8; 16], String> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(salt)
}

/// The text of a password file with another `hash` for this user, or without the user; all other lines stay as they are. `Err`: the faults
/// of the text, by line.
pub fn edited(text: &str, user: &str, hash: Option<&str>) -> Result<String, Vec<String>> {
    PasswordFile::parse(text).map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let prefix = format!("{user}:");
    let mut kept: String =
        text.lines().filter(|line| !line.starts_with(&prefix)).flat_map(|line| [line, "\n"]).collect();
    if let Some(hash) = hash {
        kept.extend([&prefix, hash, "\n"]);
    }
    Ok(kept)
}

/// Puts a new file in the place of the old one, which readers see whole or not at all. It has the owner, group and mode of the old one, so
/// that who could read that can read this. Where there was none, only its owner may read it.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = target.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        match fs::metadata(&target) {
            Ok(old) => keep_access(&file, &old)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &target)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&fresh);
    })
}

/// Gives `file` owner, group and mode of `old`.
fn keep_access(file: &File, old: &Metadata) -> io::Result<()> {
    let mine = file.metadata()?;
    if (mine.uid(), mine.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid())).map_err(|error| {
            let (user, group) = (old.uid(), old.gid());
            let what = format!("the file belongs to user {user} and group {group}, which it cannot be given again ({error}); nothing was changed; run this as that user or as root");
            io::Error::new(error.kind(), what)
        })?;
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-19, OP-07: other lines and comments stay, and so do owner and mode.
    #[test]
    fn one_user_changes_and_nothing_else() {
        let hash = super::super::hash_password(b"geheim", &salt().unwrap()).unwrap();
        let text = format!("# staff\nanna:{hash}\nanna2:{hash}\n");
        assert_eq!(edited(&text, "anna", None).unwrap(), format!("# staff\nanna2:{hash}\n"));
        assert_eq!(edited(&text, "bob", Some(&hash)).unwrap(), format!("{text}bob:{hash}\n"));
        assert_eq!(edited("nonsense\n", "bob", None).unwrap_err().len(), 1);
        assert!(
            wrong_user("anna").is_none() && ["", "a:b", "#a", "a\nb"].iter().all(|user| wrong_user(user).is_some())
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwd");
        replace_file(&path, "").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace_file(&path, &text).unwrap();
        assert_eq!((fs::metadata(&path).unwrap().mode() & 0o777, fs::read_to_string(&path).unwrap()), (0o640, text));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
