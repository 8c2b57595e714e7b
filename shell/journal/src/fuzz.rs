//! Body of the fuzz target: any bytes that a file system may give out in place of those that were written. A stable test runs it, too,
//! over the committed corpus and over mutations of it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::format::{self, FRAME_HEADER, Place, SEGMENT_HEADER, VERSION};
use crate::{Files, RecoverError, Recovered, Segment};

/// Shard of the log.
const SHARD: u16 = 3;
/// The first segment; the second has the next number.
const FIRST: u64 = 7;

/// Recovers a log of two segments. The first byte says whether the checksums of headers (bit 0) and of content (bit 1) are made to hold, so
/// that not only they are tested; the next two, big-endian, how many of the others are in the first segment.
///
/// Holds: no panic; the batches given out are the sound frames, all and only they, but those within others and those whose sequence numbers
/// do not grow; every byte is accounted for, in a batch or as damage; recovered batches that are written anew are recovered whole.
pub fn recover(data: &[u8]) {
    let [seals, high, low, segments @ ..] = data else { return };
    let length = usize::from(u16::from_be_bytes([*high, *low])).min(segments.len());
    let (first, second) = segments.split_at(length);
    let mut log = Log([first.to_vec(), second.to_vec()]);
    for (number, segment) in (FIRST..).zip(&mut log.0) {
        seal(Place { shard: SHARD, segment: number }, segment, *seals);
    }
    let (found, batches) = match log.read() {
        Ok(read) => read,
        Err(RecoverError::Version { version, .. }) => {
            let mut versions = log.0.iter().filter_map(|segment| format::segment_version(segment));
            assert!(version != VERSION && versions.any(|other| other == version), "{version}");
            return;
        }
        Err(error @ RecoverError::Io { .. }) => unreachable!("{error}"),
    };
    let lengths: Vec<_> = found.segments.iter().map(|segment| (segment.number, segment.bytes)).collect();
    assert_eq!(lengths, [(FIRST, first.len() as u64), (FIRST + 1, second.len() as u64)]);
    let headers = log.0.iter().filter(|segment| format::segment_version(segment).is_some()).count() * SEGMENT_HEADER;
    assert_eq!(found.bytes + found.dropped_bytes() + headers as u64, segments.len() as u64, "{found:?}");
    log.check(&found, &batches);
    check_written_anew(&batches);
}

/// Recovers a log whose listing may say anything. The first byte says which of the segments 1 to 8 are there, each with one batch, the
/// second whether the checksums of lines are made to hold; the rest is the listing.
///
/// Holds: no panic; every batch that is there and fits is given out; each listed segment that is not there is named once, and none that is
/// there; no more is missing than the listing says was there.
pub fn listing(data: &[u8]) {
    let [present, seals, listing @ ..] = data else { return };
    let listing = if seals & 1 == 0 { listing.to_vec() } else { sealed(listing) };
    let is_there = |number: u64| (1..=8).contains(&number) && present & (1 << (number - 1)) != 0;
    let mut disk = Listed { listing, segments: BTreeMap::new() };
    for number in (1..=8).filter(|number| is_there(*number)) {
        let place = Place { shard: SHARD, segment: number };
        let mut segment = format::segment_header(place).to_vec();
        let content = [u8::try_from(number).unwrap_or(0)];
        segment.extend(format::frame_header(place, number, &content).iter().flatten());
        segment.extend(content);
        disk.segments.insert(format::segment_name(number), segment);
    }
    let mut batches = Vec::new();
    let found = crate::recover(&disk, Path::new("log"), SHARD, &mut |batch, _| batches.push(batch));
    let Ok(found) = found else { unreachable!("it was read") };
    let said = crate::listing::Listed::parse(&disk.listing, |_, length, _| assert!(length > 0));
    assert_eq!(found.batches, batches.len() as u64);
    assert!(found.is_listed && batches.is_sorted());
    let start = found.segments.first().map_or(0, |first| first.after);
    let first_said = said.segments.first_key_value().map_or(0, |(_, after)| *after);
    let fits = |number: &u64| is_there(*number) && *number > start.max(first_said);
    let given: Vec<u64> = batches.iter().map(|batch| u64::from(batch[0])).collect();
    assert!((1..=8).filter(fits).all(|number| given.contains(&number)), "{found:?}");
    let lists = |from: u64, to: u64| {
        let is_absent = |number: &&u64| !is_there(**number);
        said.segments.range(from..=to).map(|(number, _)| number).filter(is_absent).count() as u64
    };
    assert!(found.missing_segments() >= lists(0, u64::MAX), "{found:?}");
    let whole = said.segments.values().chain([&said.kept]).copied().max().unwrap_or(0).max(found.sequence);
    assert!(found.missing <= whole, "{found:?}");
    assert!(found.holes.iter().all(|hole| !hole.to_string().is_empty()));
}

/// Every line with the checksum that it should have.
fn sealed(listing: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    for line in listing.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let end = text.iter().rposition(|byte| *byte == b' ').unwrap_or(text.len());
        sealed.extend_from_slice(&text[..end]);
        sealed.extend_from_slice(format!(" {:08x}", crc32fast::hash(&text[..end])).as_bytes());
        sealed.extend(line.ends_with(b"\n").then_some(b'\n'));
    }
    sealed
}

/// A log in memory with a listing.
#[derive(Debug)]
struct Listed {
    listing: Vec<u8>,
    segments: BTreeMap<String, Vec<u8>>,
}

impl Files for Listed {
    fn create(&self, _: &Path) -> io::Result<Arc<dyn Segment>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(self.segments.keys().cloned().collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let segment = self.segments.get(name).or_else(|| (name == "log.segments").then_some(&self.listing));
        segment.cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(0)
    }
}

/// A log in memory.
#[derive(Debug)]
struct Log([Vec<u8>; 2]);

/// The sound frame at `at`, and where it ends.
fn frame(place: Place, segment: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let rest = segment.get(at..)?;
    let header = format::read_frame_header(place, rest)?;
    let content = rest.get(FRAME_HEADER..FRAME_HEADER.checked_add(header.length)?)?;
    format::is_sound(place, header, content).then_some((header.sequence, content, at + FRAME_HEADER + content.len()))
}

/// Makes checksums hold wherever there seems to be something that has one.
fn seal(place: Place, segment: &mut [u8], seals: u8) {
    let (of_headers, of_content) = (seals & 1 != 0, seals & 2 != 0);
    if of_headers && let Some(header) = segment.first_chunk_mut::<SEGMENT_HEADER>() {
        let crc = crc32fast::hash(&header[..20]);
        header[20..].copy_from_slice(&crc.to_le_bytes());
    }
    let mut next = 0;
    while let Some(at) = format::find_frame(segment, next) {
        next = at + 1;
        let Some((header, rest)) = segment[at..].split_first_chunk_mut::<FRAME_HEADER>() else { return };
        let [_, _, _, _, a, b, c, d, sequence @ .., _, _, _, _, _, _, _, _] = *header;
        let (length, sequence) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(sequence));
        let content = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        if of_content && let Some(content) = content {
            header[16..20].copy_from_slice(&format::checksum(place, sequence, content).to_le_bytes());
            next = at + FRAME_HEADER + content.len();
        }
        if of_headers {
            let crc = format::checksum(place, sequence, &header[..20]);
            header[20..].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

impl Log {
    fn read(&self) -> Result<(Recovered, Vec<Bytes>), RecoverError> {
        let mut batches = Vec::new();
        let found = crate::recover(self, Path::new("log"), SHARD, &mut |batch, _| batches.push(batch))?;
        Ok((found, batches))
    }

    fn places(&self) -> impl Iterator<Item = (Place, &[u8])> {
        let place = |segment| Place { shard: SHARD, segment };
        (FIRST..).map(place).zip(self.0.iter().map(Vec::as_slice))
    }

    /// Compares the recovered batches with those of a reader that looks for a frame at every single byte.
    fn check(&self, found: &Recovered, batches: &[Bytes]) {
        let mut left = batches.iter();
        let mut last = 0;
        for (place, segment) in self.places() {
            let mut next = if format::segment_version(segment).is_some() { SEGMENT_HEADER } else { 0 };
            for at in 0..segment.len() {
                let Some((sequence, content, end)) = frame(place, segment, at).filter(|_| at >= next) else { continue };
                next = end;
                if sequence > last {
                    assert!(left.next().is_some_and(|batch| batch == content), "not batch {sequence}");
                    last = sequence;
                }
            }
        }
        assert_eq!((left.next(), found.batches, found.sequence), (None, batches.len() as u64, last));
    }
}

fn check_written_anew(batches: &[Bytes]) {
    let place = Place { shard: SHARD, segment: FIRST };
    let mut segment = format::segment_header(place).to_vec();
    for (sequence, batch) in (1..).zip(batches) {
        let Some(header) = format::frame_header(place, sequence, batch) else { unreachable!("it was read") };
        segment.extend_from_slice(&header);
        segment.extend_from_slice(batch);
    }
    let read = Log([segment, Vec::new()]).read();
    assert!(read.is_ok_and(|(found, again)| again == batches && found.damage.is_empty() && found.missing == 0));
}

impl Files for Log {
    fn create(&self, _: &Path) -> io::Result<Arc<dyn Segment>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(self.places().map(|(place, _)| format::segment_name(place.segment)).chain(["lock".to_owned()]).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut segments = self.places().filter(|(place, _)| format::segment_name(place.segment) == name);
        segments.next().map(|(_, segment)| segment.to_vec()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn the_recover_corpus_and_mutations_of_it_pass() {
        replay(env!("CARGO_MANIFEST_DIR"), "recover", 20_000, super::recover);
    }

    #[test]
    fn the_listing_corpus_and_mutations_of_it_pass() {
        replay(env!("CARGO_MANIFEST_DIR"), "listing", 20_000, super::listing);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
