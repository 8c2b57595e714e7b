//! What is appended is read back, whatever happens to the files.

mod fake;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fake::FakeDisk;
use sedge_journal::{AppendError, Disk, Files, Log, LogOptions, RecoverError, Recovered, Syncer, recover};

fn options(files: Arc<dyn Files>, dir: &Path) -> LogOptions {
    LogOptions { files, dir: dir.to_owned(), shard: 3, segment_bytes: 120 }
}

fn read(files: &dyn Files, dir: &Path) -> (Recovered, Vec<String>) {
    let mut batches = Vec::new();
    let found = recover(files, dir, 3, &mut |batch, _| batches.push(String::from_utf8_lossy(&batch).into_owned()));
    (found.expect("readable"), batches)
}

fn fake() -> (Arc<FakeDisk>, PathBuf) {
    (Arc::new(FakeDisk::default()), PathBuf::from("journal/shard-3"))
}

fn filled(disk: &Arc<FakeDisk>, dir: &Path, batches: &[&str]) -> Log {
    let mut log = Log::open(options(Arc::clone(disk) as Arc<dyn Files>, dir), &Recovered::default()).expect("opens");
    for batch in batches {
        log.append(batch.as_bytes()).expect("appends");
    }
    log
}

#[test]
fn batches_come_back_in_order_from_real_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("a/b");
    let mut wanted = Vec::new();
    for life in 0..3 {
        let (found, batches) = read(&Disk, &dir);
        assert_eq!((&batches, found.damage.len(), found.missing), (&wanted, 0, 0));
        let mut log = Log::open(options(Arc::new(Disk), &dir), &found).expect("opens");
        for number in 0..10 {
            let batch = format!("batch {number} of life {life}");
            log.append(batch.as_bytes()).expect("appends");
            wanted.push(batch);
        }
        assert_eq!(log.sequence(), wanted.len() as u64);
        let on_disk: u64 =
            std::fs::read_dir(&dir).expect("lists").map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(log.bytes(), on_disk);
        assert!(Disk.free_bytes(&dir).expect("a file system") > 0);
    }
    let (found, batches) = read(&Disk, &dir);
    assert_eq!(batches, wanted);
    assert!(found.segments.len() > 3);
}

#[test]
fn removed_segments_are_gone_and_no_hole() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &["one", "two"]);
    let next = log.next_segment();
    log.roll();
    log.append(b"three").expect("appends");
    log.remove_before(next).expect("removes");
    assert_eq!(log.segments(), 1);
    let (found, batches) = read(&*disk, &dir);
    assert_eq!((batches, found.missing, log.bytes()), (vec!["three".to_owned()], 0, found.segments[0].1));
}

/// Every prefix of a log is a log: what was complete is there, the rest is reported.
#[test]
fn a_log_cut_anywhere_keeps_what_was_complete() {
    let (disk, dir) = fake();
    drop(filled(&disk, &dir, &["one", "two", "three"]));
    let whole = disk.content(&dir.join("00000001.log"));
    let mut last = 0;
    for length in 0..whole.len() {
        disk.put(&dir.join("00000001.log"), whole[..length].to_vec());
        let (found, batches) = read(&*disk, &dir);
        assert!(["one", "two", "three"].iter().take(batches.len()).eq(batches.iter()), "{length}: {batches:?}");
        assert!(batches.len() >= last && batches.len() < 3);
        last = batches.len();
        assert_eq!(found.missing, 0);
        let header = if length < 24 { 0 } else { 24 };
        assert_eq!(header + found.bytes + found.dropped_bytes(), length as u64, "{length}");
    }
    assert_eq!(last, 2);
}

/// No bit can flip without being noticed; everything before it is kept, and everything after it that is sound.
#[test]
fn a_flipped_bit_anywhere_costs_one_batch_at_most() {
    let (disk, dir) = fake();
    let wanted = ["one", "two", "three"];
    drop(filled(&disk, &dir, &wanted));
    let whole = disk.content(&dir.join("00000001.log"));
    for at in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        disk.put(&dir.join("00000001.log"), flipped);
        let (found, batches) = read(&*disk, &dir);
        assert!(batches.iter().all(|batch| wanted.contains(&batch.as_str())), "bit {at}: {batches:?}");
        assert!(batches.len() >= 2, "bit {at}: {batches:?}");
        assert!(batches.is_sorted_by_key(|batch| wanted.iter().position(|known| known == batch)));
        assert!(!found.damage.is_empty(), "bit {at} was not noticed");
        let lost = wanted.iter().position(|batch| !batches.iter().any(|found| found == batch));
        assert_eq!(found.has_holes(), lost.is_some_and(|lost| lost < 2), "bit {at}");
    }
}

#[test]
fn bytes_of_another_shard_or_segment_are_no_batches() {
    let (disk, dir) = fake();
    drop(filled(&disk, &dir, &["one"]));
    let content = disk.content(&dir.join("00000001.log"));
    disk.put(&dir.join("00000002.log"), content);
    let (found, batches) = read(&*disk, &dir);
    assert_eq!((batches.len(), found.damage.len()), (1, 1));
    let other = recover(&*disk, &dir, 4, &mut |_, _| panic!("a batch of another shard")).expect("readable");
    assert_eq!(other.batches, 0);
}

#[test]
fn a_later_format_is_refused() {
    let (disk, dir) = fake();
    drop(filled(&disk, &dir, &["one"]));
    let mut content = disk.content(&dir.join("00000001.log"));
    content[8] = 2;
    let crc = crc32fast::hash(&content[..20]);
    content[20..24].copy_from_slice(&crc.to_le_bytes());
    disk.put(&dir.join("00000001.log"), content);
    let error = recover(&*disk, &dir, 3, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, RecoverError::Version { version: 2, .. }), "{error}");
}

/// A full disk leaves no half batch behind, and the same batch fits in once there is room again.
#[test]
fn a_full_disk_loses_nothing_and_recovers() {
    for room in 0..200 {
        let (disk, dir) = fake();
        disk.set_room(room);
        let mut log =
            Log::open(options(Arc::clone(&disk) as Arc<dyn Files>, &dir), &Recovered::default()).expect("opens");
        let mut kept = Vec::new();
        let mut batch = 0;
        let refused = loop {
            let content = format!("batch {batch}");
            match log.append(content.as_bytes()) {
                Ok(_) => kept.push(content),
                Err(AppendError::Full(error)) => break (content, error.kind()),
                Err(error) => panic!("{error}"),
            }
            batch += 1;
        };
        assert_eq!(refused.1, ErrorKind::StorageFull);
        assert_eq!(read(&*disk, &dir).1, kept, "room for {room}");
        disk.set_room(10_000);
        log.append(refused.0.as_bytes()).expect("there is room");
        kept.push(refused.0);
        let (found, batches) = read(&*disk, &dir);
        assert_eq!((batches, found.missing, found.damage.len()), (kept, 0, 0), "room for {room}");
    }
}

#[test]
fn a_failed_write_is_no_full_disk() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &["one"]);
    disk.fail_writes(true);
    assert!(matches!(log.append(b"two"), Err(AppendError::Failed { .. })));
    disk.fail_writes(false);
    assert_eq!(read(&*disk, &dir).1, ["one"]);
}

/// Many batches, few calls: all that wait while one is under way go with the next.
#[test]
fn commits_are_grouped_and_tell_how_far_they_are() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &[]);
    let (told, heard) = std::sync::mpsc::channel();
    let syncer = Syncer::start("sync".to_owned(), move || told.send(()).expect("somebody listens")).expect("a thread");
    let gate = disk.hold_syncs();
    for number in 0..50 {
        let sequence = log.append(format!("batch {number}").as_bytes()).expect("appends");
        syncer.request(log.current().expect("a segment"), sequence);
    }
    assert_eq!(syncer.synced().sequence(), 0);
    drop(gate);
    while syncer.synced().sequence() < 50 {
        heard.recv_timeout(std::time::Duration::from_secs(20)).expect("a commit");
    }
    assert_eq!(disk.unsynced(), 0);
    assert!(syncer.synced().commits().0 <= 50);
    assert!(syncer.synced().take_failure().is_none());
}

/// After a failed fsync nobody knows what is on the medium: nothing is called durable any more.
#[test]
fn a_failed_fsync_is_final() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &["one"]);
    let (told, heard) = std::sync::mpsc::channel();
    let syncer = Syncer::start("sync".to_owned(), move || told.send(()).expect("somebody listens")).expect("a thread");
    disk.fail_syncs(true);
    syncer.request(log.current().expect("a segment"), 1);
    heard.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
    disk.fail_syncs(false);
    assert!(syncer.synced().take_failure().is_some());
    let sequence = log.append(b"two").expect("appends");
    syncer.request(log.current().expect("a segment"), sequence);
    let synced = Arc::clone(syncer.synced());
    drop(syncer);
    assert_eq!(synced.sequence(), 0);
}
