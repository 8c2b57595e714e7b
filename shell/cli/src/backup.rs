//! `sedge backup` and `sedge restore`: the data directory of a node and its accounts in one archive (tar).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use clap::Args;
use sedge_daemon::backup::{Hold, parts};
use sedge_daemon::{Config, Overrides};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use crate::failure::{Failure, USAGE};
use crate::out;
use crate::serve::environment;

/// Last entry of an archive: a list of the other entries, with checksums.
const MANIFEST: &str = "sedge-backup.json";
/// Version of the format.
const FORMAT: u64 = 1;
/// Folder of the files below the data directory.
const DATA: &str = "data";
/// Folder of accounts, rules and the configuration.
const FILES: &str = "files";
/// Where an archive is unpacked before anything is replaced.
const FRESH: &str = "restore.new";
/// Longest manifest: some hundred thousand files.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

const BACKUP_EXAMPLES: &str = "\
Examples:
  sedge backup -c /etc/sedge/sedge.toml node-1.tar            the node may run, and is not disturbed
  sedge backup -c /etc/sedge/sedge.toml - | zstd > node-1.tar.zst

An archive holds retained messages, sessions with what waits for them, wills, the node's id, password file and rules. It holds
neither cluster.key nor certificates. Make one on each node.";

/// Save what a node keeps and its accounts, while it runs
#[derive(Args, Debug)]
#[command(after_help = BACKUP_EXAMPLES)]
pub(crate) struct BackupArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Archive to write; - for standard output
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// Print what was saved as JSON
    #[arg(long)]
    json: bool,
}

const RESTORE_EXAMPLES: &str = "\
Examples:
  systemctl stop sedge && sedge restore -c /etc/sedge/sedge.toml node-1.tar && systemctl start sedge

The node must not run. Files that are there are kept unless --force is given; then the journal that is there goes to
journal.replaced.";

/// Put back what `sedge backup` has saved, before the node starts
#[derive(Args, Debug)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// Configuration file of the node: says where everything belongs
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Archive to read; - for standard input
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// Replace a journal, accounts and rules that are there
    #[arg(long)]
    force: bool,
    /// Print what was put back as JSON
    #[arg(long)]
    json: bool,
}

/// Paths of a node's data.
struct Places {
    data: PathBuf,
    /// Accounts and rules, by name within the archive.
    files: Vec<(&'static str, PathBuf)>,
}

impl Places {
    fn of(config: &Config) -> Result<Self, Failure> {
        let Some(data) = config.node.data_dir.clone() else {
            return Err(Failure::new(
                USAGE,
                "node.data_dir is not set: the node keeps nothing that could be saved; give its configuration with -c",
            ));
        };
        let files = [("passwords", &config.auth.password_file), ("acl", &config.acl.file)];
        let files = files.into_iter().filter_map(|(name, path)| Some((name, path.clone()?))).collect();
        Ok(Self { data, files })
    }
}

/// The accounts that a configuration names may be missing before they are restored.
fn load(path: Option<&Path>) -> Result<Config, Failure> {
    Config::load_unchecked(path, environment(), &Overrides::new())
        .map_err(|error| Failure::new(USAGE, error.to_string()))
}

fn at(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

/// A reader that passes bytes on and adds them to a checksum.
struct Summed<R> {
    inner: R,
    sum: Sha256,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.sum.update(into.get(..count).unwrap_or_default());
        Ok(count)
    }
}

fn hex(sum: Sha256) -> String {
    sum.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An archive that is being written.
struct Writer<W: Write> {
    tar: Builder<W>,
    manifest: BTreeMap<String, Value>,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    fn add(&mut self, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_entry_type(EntryType::Regular);
        let mut content = Summed { inner: content.take(bytes), sum: Sha256::new() };
        self.tar.append_data(&mut header, name, &mut content)?;
        self.manifest.insert(name.to_owned(), json!({ "bytes": bytes, "sha256": hex(content.sum) }));
        self.bytes += bytes;
        Ok(())
    }

    fn finish(mut self) -> io::Result<(usize, u64)> {
        let count = self.manifest.len();
        let manifest = json!({ "format": FORMAT, "version": env!("CARGO_PKG_VERSION"), "files": self.manifest });
        let text = manifest.to_string().into_bytes();
        self.manifest = BTreeMap::new();
        let bytes = self.bytes;
        self.add(MANIFEST, text.len() as u64, text.as_slice())?;
        self.tar.into_inner()?.flush()?;
        Ok((count, bytes))
    }
}

/// Runs `sedge backup`.
pub(crate) fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let places = Places::of(&load(args.config.as_deref())?)?;
    if !places.data.join("journal/current").exists() {
        let text = format!(
            "{} holds no journal: the node has never run, or node.durability is \"memory\", which keeps nothing",
            places.data.display()
        );
        return Err(Failure::failed(text));
    }
    let to_output = args.archive == Path::new("-");
    let (count, bytes) = if to_output {
        write(&places, io::stdout().lock()).map_err(|(path, error)| at(&path.unwrap_or_else(|| "-".into()), &error))?
    } else {
        let fresh = args.archive.with_extension("part");
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
        let file = file.map_err(|error| at(&fresh, &error))?;
        let written = write(&places, io::BufWriter::new(&file))
            .map_err(|(path, error)| at(path.as_ref().unwrap_or(&fresh), &error));
        let written = written.and_then(|sums| {
            file.sync_all().and_then(|()| fs::rename(&fresh, &args.archive)).map_err(|error| at(&fresh, &error))?;
            Ok(sums)
        });
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written?
    };
    let said = json!({ "archive": args.archive, "files": count, "bytes": bytes });
    match (args.json, to_output) {
        (true, false) => out::json(&said),
        (_, true) => {
            out::note(&format!("{count} files, {bytes} bytes"));
            Ok(())
        }
        (false, false) => out::line(&format!("{}: {count} files, {bytes} bytes", args.archive.display())),
    }
}

/// Writes an archive; an error names the file it is about, if that is another than the archive.
fn write(places: &Places, sink: impl Write) -> Result<(usize, u64), (Option<PathBuf>, io::Error)> {
    let mut writer = Writer { tar: Builder::new(sink), manifest: BTreeMap::new(), bytes: 0 };
    let found = parts(&places.data).map_err(|error| (Some(places.data.clone()), error))?;
    for part in found {
        writer.add(&format!("{DATA}/{}", part.name), part.bytes, part.file).map_err(|error| (None, error))?;
    }
    for (name, path) in &places.files {
        let content = fs::read(path).map_err(|error| (Some(path.clone()), error))?;
        let bytes = content.len() as u64;
        writer.add(&format!("{FILES}/{name}"), bytes, content.as_slice()).map_err(|error| (None, error))?;
    }
    writer.finish().map_err(|error| (None, error))
}

/// Runs `sedge restore`.
pub(crate) fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let places = Places::of(&load(args.config.as_deref())?)?;
    let _hold = Hold::take(&places.data).map_err(|error| Failure::failed(format!("{error}; stop the node first")))?;
    let fresh = places.data.join(FRESH);
    let _ = fs::remove_dir_all(&fresh);
    let unpacked = if args.archive == Path::new("-") {
        unpack(io::stdin().lock(), &fresh)
    } else {
        let file = File::open(&args.archive).map_err(|error| at(&args.archive, &error))?;
        unpack(io::BufReader::new(file), &fresh)
    };
    let put = unpacked
        .map_err(|what| Failure::failed(format!("{}: {what}; nothing was changed", args.archive.display())))
        .and_then(|()| put_back(&places, &fresh, args.force));
    let _ = fs::remove_dir_all(&fresh);
    let put = put?;
    if args.json {
        return out::json(&json!({ "restored": put }));
    }
    out::line(&put.iter().map(|path| format!("restored {}", path.display())).collect::<Vec<_>>().join("\n"))
}

/// Unpacks an archive into `fresh`, and compares it with its manifest.
fn unpack(source: impl Read, fresh: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let mut archive = Archive::new(source);
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let mut manifest: Option<Value> = None;
    for entry in archive.entries().map_err(text)? {
        let mut entry = entry.map_err(text)?;
        let path = entry.path().map_err(text)?.into_owned();
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let name = path.to_str().filter(|_| plain && entry.header().entry_type() == EntryType::Regular);
        let name = name.ok_or_else(|| format!("{} does not belong into an archive of sedge backup", path.display()))?;
        if name == MANIFEST {
            let content = entry.take(MANIFEST_BYTES_MAX);
            manifest = Some(serde_json::from_reader(content).map_err(|error| format!("{MANIFEST}: {error}"))?);
            continue;
        }
        let target = fresh.join(name);
        let parent = target.parent().unwrap_or(fresh);
        fs::create_dir_all(parent).map_err(text)?;
        let mut content = Summed { inner: &mut entry, sum: Sha256::new() };
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .map_err(|error| format!("{name}: {error}"))?;
        let bytes = io::copy(&mut content, &mut file).map_err(text)?;
        file.sync_all().map_err(text)?;
        found.insert(name.to_owned(), json!({ "bytes": bytes, "sha256": hex(content.sum) }));
    }
    let manifest = manifest.ok_or("this is no archive of sedge backup, or its end is missing")?;
    if manifest["format"] != json!(FORMAT) {
        return Err(format!(
            "its format is {}, and this version reads {FORMAT} only; use the version that has written it",
            manifest["format"]
        ));
    }
    let wrong = |name: &&String| manifest["files"].get(name.as_str()) != found.get(name.as_str());
    let listed: Vec<String> =
        manifest["files"].as_object().map(|files| files.keys().cloned().collect()).unwrap_or_default();
    match listed.iter().chain(found.keys()).find(wrong) {
        Some(name) => Err(format!("{name} is not what was saved: the archive is damaged")),
        None => Ok(()),
    }
}

/// Moves everything to its place; says where that is.
fn put_back(places: &Places, fresh: &Path, force: bool) -> Result<Vec<PathBuf>, Failure> {
    let files: Vec<(PathBuf, PathBuf)> = places
        .files
        .iter()
        .map(|(name, path)| (fresh.join(FILES).join(name), path.clone()))
        .filter(|(from, _)| from.exists())
        .collect();
    let journal = places.data.join("journal");
    let in_the_way: Vec<&PathBuf> =
        files.iter().map(|(_, to)| to).chain([&journal]).filter(|path| path.exists()).collect();
    // Accounts that are the same are in nobody's way.
    let same = |to: &PathBuf| files.iter().any(|(from, place)| place == to && fs::read(from).ok() == fs::read(to).ok());
    if let Some(path) = in_the_way.iter().find(|path| !force && !same(path)) {
        return Err(Failure::failed(format!("{} is there already; --force replaces it", path.display())));
    }
    if journal.exists() {
        let aside = places.data.join("journal.replaced");
        if aside.exists() {
            return Err(Failure::failed(format!("{} is there from another time; move it away", aside.display())));
        }
        fs::rename(&journal, &aside).map_err(|error| at(&journal, &error))?;
    }
    let mut put = Vec::new();
    let data = fresh.join(DATA);
    for entry in fs::read_dir(&data).map_err(|error| at(&data, &error))? {
        let from = entry.map_err(|error| at(&data, &error))?.path();
        let to = places.data.join(from.file_name().unwrap_or_default());
        if to.is_dir() {
            return Err(Failure::failed(format!("{} is there already; move it away", to.display())));
        }
        fs::rename(&from, &to).map_err(|error| at(&to, &error))?;
        put.push(to);
    }
    for (from, to) in files {
        let content = fs::read(&from).map_err(|error| at(&from, &error))?;
        // Mode and owner of a file that is there stay.
        let is_new = !to.exists();
        fs::write(&to, content).map_err(|error| at(&to, &error))?;
        if is_new {
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).map_err(|error| at(&to, &error))?;
        }
        put.push(to);
    }
    put.sort();
    Ok(put)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut writer = Writer { tar: Builder::new(Vec::new()), manifest: BTreeMap::new(), bytes: 0 };
        writer.add("data/node-id", 2, &b"7\nmore"[..]).unwrap();
        let mut bytes = Vec::new();
        let count = writer.manifest.len();
        let manifest = json!({ "format": FORMAT, "files": writer.manifest }).to_string();
        writer.add(MANIFEST, manifest.len() as u64, manifest.as_bytes()).unwrap();
        bytes.extend(writer.tar.into_inner().unwrap());
        assert_eq!(count, 1);
        edit(&mut bytes);
        bytes
    }

    #[test]
    fn a_damaged_archive_is_refused_before_anything_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("fresh");
        unpack(archive(|_| ()).as_slice(), &fresh).unwrap();
        assert_eq!(fs::read(fresh.join("data/node-id")).unwrap(), b"7\n");
        for (name, edit, word) in [
            ("flipped", (|bytes: &mut Vec<u8>| bytes[512] ^= 1) as fn(&mut Vec<u8>), "is not what was saved"),
            ("cut", |bytes| bytes.truncate(1024), "its end is missing"),
            ("noise", |bytes| *bytes = vec![b'x'; 2048], ""),
        ] {
            let error = unpack(archive(edit).as_slice(), &dir.path().join(name)).unwrap_err();
            assert!(error.contains(word), "{name}: {error}");
        }
    }

    #[test]
    fn an_archive_writes_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut tar = Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..10].copy_from_slice(b"../outside");
        header.set_size(1);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        tar.append(&header, &b"x"[..]).unwrap();
        let error = unpack(tar.into_inner().unwrap().as_slice(), &dir.path().join("fresh")).unwrap_err();
        assert!(error.contains("does not belong"), "{error}");
        assert!(!dir.path().join("outside").exists());
    }
}
