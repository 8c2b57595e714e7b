//! The bytes of a segment: a header, then frames. Numbers are little-endian.
//!
//! ```text
//! segment  "SEDGEJNL"  version u16  shard u16  number u64  crc u32
//! frame    magic u32  length u32  sequence u64  crc of content u32  crc of header u32  content
//! ```
//!
//! Both checksums of a frame (CRC-32, as in IEEE 802.3) begin with shard, segment and sequence, so that a frame is sound only
//! where it was written.

use crc32fast::Hasher;

/// Length of a segment's header.
pub(crate) const SEGMENT_HEADER: usize = 24;
/// Length of a frame's header.
pub(crate) const FRAME_HEADER: usize = 24;
/// Version of the format.
pub(crate) const VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"SEDGEJNL";
const FRAME_MAGIC: [u8; 4] = [0xd1, b'S', b'J', 0x0a];

/// Where a frame is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) shard: u16,
    pub(crate) segment: u64,
}

/// Content of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) length: usize,
    pub(crate) sequence: u64,
    content_crc: u32,
}

fn seeded(place: Place, sequence: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.update(&place.shard.to_le_bytes());
    hasher.update(&place.segment.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher
}

/// Checksum of `bytes` in a frame with this place and sequence number.
pub(crate) fn checksum(place: Place, sequence: u64, bytes: &[u8]) -> u32 {
    let mut hasher = seeded(place, sequence);
    hasher.update(bytes);
    hasher.finalize()
}

/// The header of a segment.
pub(crate) fn segment_header(place: Place) -> [u8; SEGMENT_HEADER] {
    let mut header = [0; SEGMENT_HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header[10..12].copy_from_slice(&place.shard.to_le_bytes());
    header[12..20].copy_from_slice(&place.segment.to_le_bytes());
    let crc = crc32fast::hash(&header[..20]);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The version in the header of a segment; `None` if the header is damaged.
pub(crate) fn segment_version(bytes: &[u8]) -> Option<u16> {
    let header = bytes.first_chunk::<SEGMENT_HEADER>()?;
    let crc = u32::from_le_bytes(*header.last_chunk()?);
    let sound = header.starts_with(MAGIC) && crc == crc32fast::hash(&header[..20]);
    sound.then(|| u16::from_le_bytes([header[8], header[9]]))
}

/// The header of a frame with this content; `None` if the content is longer than a frame can say.
pub(crate) fn frame_header(place: Place, sequence: u64, content: &[u8]) -> Option<[u8; FRAME_HEADER]> {
    let length = u32::try_from(content.len()).ok()?;
    let mut header = [0; FRAME_HEADER];
    header[..4].copy_from_slice(&FRAME_MAGIC);
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..20].copy_from_slice(&checksum(place, sequence, content).to_le_bytes());
    let crc = checksum(place, sequence, &header[..20]);
    header[20..].copy_from_slice(&crc.to_le_bytes());
    Some(header)
}

/// The frame header that `bytes` begin with, if they begin with a sound one.
pub(crate) fn read_frame_header(place: Place, bytes: &[u8]) -> Option<FrameHeader> {
    let header = bytes.first_chunk::<FRAME_HEADER>()?;
    if !header.starts_with(&FRAME_MAGIC) {
        return None;
    }
    let number = |from: usize| -> Option<u32> { Some(u32::from_le_bytes(*header.get(from..)?.first_chunk()?)) };
    let sequence = u64::from_le_bytes(*header.get(8..)?.first_chunk()?);
    let sound = number(20)? == checksum(place, sequence, &header[..20]);
    let length = usize::try_from(number(4)?).ok()?;
    let content_crc = number(16)?;
    sound.then_some(FrameHeader { length, sequence, content_crc })
}

/// Whether this is the content that the header was written for.
pub(crate) fn is_sound(place: Place, header: FrameHeader, content: &[u8]) -> bool {
    header.content_crc == checksum(place, header.sequence, content)
}

/// Where the next frame may begin, at `from` or later.
pub(crate) fn find_frame(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(FRAME_MAGIC.len()).position(|window| window == FRAME_MAGIC).map(|at| from + at)
}

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:08}.log")
}

/// The number in the name of a segment's file.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    if digits.len() < 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}
