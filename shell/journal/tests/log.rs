//! Appended batches are read back, whatever happens to the files.

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
    assert_eq!((batches, found.missing, log.bytes()), (vec!["three".to_owned()], 0, found.segments[0].bytes));
}

/// Every prefix of a log is a log: its complete batches are there, the rest is reported.
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

/// FT-29: the next segment cannot be made because clients have all descriptors of the process (EMFILE) or the machine (ENFILE).
#[test]
fn want_of_descriptors_is_no_broken_disk() {
    for errno in [24, 23] {
        let (disk, dir) = fake();
        let mut log = filled(&disk, &dir, &["one"]);
        log.roll();
        disk.fail_creates(Some(errno));
        let refused = log.append(b"two").unwrap_err();
        assert!(matches!(&refused, AppendError::Full(error) if error.raw_os_error() == Some(errno)), "{refused}");
        disk.fail_creates(None);
        log.append(b"two").expect("there are descriptors again");
        let (found, batches) = read(&*disk, &dir);
        assert_eq!((found.missing, found.damage.len()), (0, 0));
        assert_eq!(batches, ["one", "two"]);
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

/// After a failed fsync nobody knows which bytes are on the medium: nothing is called durable any more.
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

/// Four segments of two batches each, of which the first was let go; everything is kept.
fn listed(disk: &Arc<FakeDisk>, dir: &Path) -> Vec<&'static str> {
    let mut log = filled(disk, dir, &[]);
    for pair in [["a1", "a2"], ["b1", "b2"], ["c1", "c2"], ["d1", "d2"]] {
        log.roll();
        for batch in pair {
            let sequence = log.append(batch.as_bytes()).expect("appends");
            log.note_kept(sequence);
        }
    }
    log.let_go_before(2);
    log.remove_before(2).expect("removes");
    log.close(log.sequence()).expect("closes");
    assert_eq!(read(&**disk, dir).0.holes, []);
    vec!["b1", "b2", "c1", "c2", "d1", "d2"]
}

fn holes(found: &Recovered) -> Vec<String> {
    found.holes.iter().map(ToString::to_string).collect()
}

/// Whatever segments are gone: it is said which, and which batches were in them; the others are there.
#[test]
fn segments_that_are_gone_are_named_and_counted() {
    for gone in 1..8_u64 {
        let (disk, dir) = fake();
        let all = listed(&disk, &dir);
        let is_gone = |number: u64| gone & (1 << (number - 2)) != 0;
        for number in (2..=4).filter(|number| is_gone(*number)) {
            disk.remove(&dir.join(format!("{number:08}.log"))).expect("was there");
        }
        let (found, batches) = read(&*disk, &dir);
        let left = |(at, _): &(usize, &&str)| !is_gone(*at as u64 / 2 + 2);
        let wanted: Vec<_> = all.iter().enumerate().filter(left).map(|(_, batch)| *batch).collect();
        assert_eq!(batches, wanted, "{gone:03b}");
        assert_eq!(found.missing_segments(), u64::from(gone.count_ones()), "{gone:03b}: {found:?}");
        assert_eq!(found.missing, 2 * found.missing_segments(), "{gone:03b}: {found:?}");
        let named = match gone {
            0b001 => vec!["journal/shard-3/00000002.log is missing: without batches 3 to 4"],
            0b010 => vec!["journal/shard-3/00000003.log is missing: without batches 5 to 6"],
            0b100 => vec!["journal/shard-3/00000004.log is missing: without batches 7 to 8"],
            0b101 => vec![
                "journal/shard-3/00000002.log is missing: without batches 3 to 4",
                "journal/shard-3/00000004.log is missing: without batches 7 to 8",
            ],
            0b111 => vec![
                "3 files are missing, journal/shard-3/00000002.log to journal/shard-3/00000004.log: without batches 3 to 8",
            ],
            _ => continue,
        };
        assert_eq!(holes(&found), named, "{gone:03b}");
    }
}

/// Without a listing, as logs of the first format are, a hole between two segments is still seen.
#[test]
fn a_hole_between_segments_needs_no_listing() {
    let (disk, dir) = fake();
    listed(&disk, &dir);
    disk.remove(&dir.with_extension("segments")).expect("was there");
    disk.remove(&dir.join("00000003.log")).expect("was there");
    let (found, batches) = read(&*disk, &dir);
    assert_eq!((batches.len(), found.is_listed, found.missing), (4, false, 2));
    assert_eq!(holes(&found), ["journal/shard-3/00000003.log is missing: without batches 5 to 6"]);
}

/// A segment that was longer is no torn write: the loss of a fifth of the kept batches is always noticed, all of it after an orderly end.
#[test]
fn a_segment_that_was_longer_is_cut_short() {
    for is_closed in [true, false] {
        let (disk, dir) = fake();
        let options = LogOptions { segment_bytes: 1_000_000, ..options(Arc::clone(&disk) as Arc<dyn Files>, &dir) };
        let mut log = Log::open(options, &Recovered::default()).expect("opens");
        for number in 0..100 {
            let sequence = log.append(format!("batch {number}").as_bytes()).expect("appends");
            log.note_kept(sequence);
        }
        if is_closed {
            log.close(100).expect("closes");
        }
        let path = dir.join("00000001.log");
        let whole = disk.content(&path);
        for length in (0..whole.len()).rev().step_by(7) {
            disk.put(&path, whole[..length].to_vec());
            let (found, batches) = read(&*disk, &dir);
            if is_closed || length < whole.len() * 4 / 5 {
                let end = found.sequence + found.missing;
                let wanted =
                    format!("{} ends too early: without batches {} to {end}", path.display(), batches.len() + 1);
                assert_eq!(holes(&found), [wanted], "{length} of {}", whole.len());
                assert!(
                    end >= 80 && found.damage.iter().all(|damage| damage.what != "an unfinished write"),
                    "{found:?}"
                );
            }
        }
    }
}

/// A torn last write of a former life is followed by the segments of the next: nothing is missing.
#[test]
fn a_torn_write_behind_everything_that_was_kept_is_no_hole() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &["one", "two"]);
    log.note_kept(2);
    log.append(b"never kept").expect("appends");
    drop(log);
    let path = dir.join("00000001.log");
    let whole = disk.content(&path);
    disk.put(&path, whole[..whole.len() - 1].to_vec());
    for _ in 0..2 {
        let (found, batches) = read(&*disk, &dir);
        assert_eq!(batches[..2], ["one", "two"]);
        assert_eq!((found.has_holes(), found.damage.len(), found.damage[0].what), (false, 1, "an unfinished write"));
        let mut log = Log::open(options(Arc::clone(&disk) as Arc<dyn Files>, &dir), &found).expect("opens");
        log.append(b"three").expect("appends");
        log.close(log.sequence()).expect("closes");
    }
}

/// The listing goes to the medium with the segment, and later lines of the listing do not delay a caller that waits for an earlier line.
#[test]
fn who_lets_go_waits_for_its_own_line_only() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &["one"]);
    log.roll();
    let next = log.next_segment();
    log.append(b"two").expect("appends");
    let lines = log.let_go_before(next);
    assert!(!log.is_listed(lines));
    disk.fail_syncs(true);
    assert!(log.current().expect("a segment").sync().is_err() && !log.is_listed(lines));
    disk.fail_syncs(false);
    log.current().expect("a segment").sync().expect("syncs");
    log.note_kept(2);
    assert!(log.is_listed(lines) && !log.is_listed(lines + 1));
}

/// The listing stays short, however many segments came and went.
#[test]
fn the_listing_is_written_anew_before_it_grows_long() {
    let (disk, dir) = fake();
    let mut log = filled(&disk, &dir, &[]);
    let path = dir.with_extension("segments");
    for _ in 0..3_000 {
        log.roll();
        let sequence = log.append(b"x").expect("appends");
        log.note_kept(sequence);
        let number = log.next_segment() - 1;
        log.let_go_before(number);
        log.remove_before(number).expect("removes");
        assert!(disk.content(&path).len() < 66_000);
    }
    drop(log);
    let (found, batches) = read(&*disk, &dir);
    assert_eq!((batches.len(), found.has_holes(), found.damage.len()), (1, false, 0));
}
