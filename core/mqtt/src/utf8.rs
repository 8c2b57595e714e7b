//! Strings as MQTT has them on the wire.

use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use bytes::Bytes;

/// Most bytes of an MQTT string (MQTT 5.0 section 1.5.4).
pub(crate) const MAX_STRING_BYTES: usize = 65_535;

/// Why bytes are no MQTT string (MQTT 5.0 section 1.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUtf8 {
    /// Not well-formed UTF-8; encoded surrogates count as such.
    #[error("not well-formed UTF-8")]
    IllFormed,
    /// Holds the character U+0000.
    #[error("holds the character U+0000")]
    Nul,
    /// Longer than 65,535 bytes.
    #[error("longer than 65,535 bytes")]
    TooLong,
}

/// An MQTT string (MQTT 5.0 section 1.5.4): well-formed UTF-8 without U+0000, at most 65,535 bytes. Cheap to clone: a view
/// into the buffer it was read from, which it keeps alive; see [`Utf8::detached`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Utf8(Bytes);

impl Utf8 {
    /// A copy of `text`.
    pub fn new(text: &str) -> Result<Self, InvalidUtf8> {
        check_str(text.as_bytes())?;
        Ok(Self(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// A view of `bytes`, once they are found to be an MQTT string.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, InvalidUtf8> {
        // Nearly all are, and are found so in a step for every eight bytes.
        if bytes.len() <= MAX_STRING_BYTES && is_ascii_without_nul(&bytes) {
            return Ok(Self(bytes));
        }
        check_str(&bytes)?;
        core::str::from_utf8(&bytes).ok().ok_or(InvalidUtf8::IllFormed)?;
        Ok(Self(bytes))
    }

    /// A string of the program itself.
    ///
    /// # Panics
    ///
    /// If `text` holds U+0000 or is longer than 65,535 bytes.
    pub fn from_static(text: &'static str) -> Self {
        assert!(check_str(text.as_bytes()).is_ok(), "a static MQTT string is short and holds no U+0000");
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Checked at construction; without unsafe code the check has to be repeated, at the speed of a memory copy.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text as bytes.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A copy that shares no buffer with anything: for what is kept longer than the packet it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

fn check_str(bytes: &[u8]) -> Result<(), InvalidUtf8> {
    if bytes.len() > MAX_STRING_BYTES {
        return Err(InvalidUtf8::TooLong);
    }
    if bytes.contains(&0) {
        return Err(InvalidUtf8::Nul);
    }
    Ok(())
}

/// Whether every byte is one from 1 to 127.
fn is_ascii_without_nul(bytes: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x80 * ONES;
    // Where all bytes are below 128, only a zero borrows.
    let is_plain = |word: u64| (word | word.wrapping_sub(ONES)) & HIGH_BITS == 0;
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|word| is_plain(u64::from_le_bytes(*word))) && rest.iter().all(|byte| (1..128).contains(byte))
}

impl fmt::Debug for Utf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Utf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Hash for Utf8 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Utf8 {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Utf8 {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialEq<str> for Utf8 {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other.as_bytes()
    }
}

impl PartialEq<&str> for Utf8 {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl Deref for Utf8 {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Utf8 {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Utf8 {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl TryFrom<&str> for Utf8 {
    type Error = InvalidUtf8;

    fn try_from(text: &str) -> Result<Self, InvalidUtf8> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-12
    #[test]
    fn only_what_the_standard_forbids_is_refused() {
        assert_eq!(Utf8::from_bytes(Bytes::from_static(b"a\xff")), Err(InvalidUtf8::IllFormed));
        assert_eq!(Utf8::from_bytes(Bytes::from_static(b"\xed\xa0\x80")), Err(InvalidUtf8::IllFormed));
        assert_eq!(Utf8::new("a\0"), Err(InvalidUtf8::Nul));
        assert_eq!(Utf8::new(&"x".repeat(65_536)), Err(InvalidUtf8::TooLong));
        for fine in ["", "\u{1}", "\u{ffff}", "\u{feff}", "ä€𝄞"] {
            assert_eq!(Utf8::new(fine).unwrap().as_str(), fine);
        }
        assert_eq!(Utf8::new(&"x".repeat(65_535)).unwrap().len(), 65_535);
    }

    /// MQ-12: whichever byte it is, and wherever.
    #[test]
    fn every_byte_counts() {
        for len in 1..20 {
            for at in 0..len {
                for byte in 0..=255 {
                    let mut text = vec![b'a'; len];
                    text[at] = byte;
                    let expected = match byte {
                        0 => Some(InvalidUtf8::Nul),
                        1..128 => None,
                        128.. => Some(InvalidUtf8::IllFormed),
                    };
                    assert_eq!(Utf8::from_bytes(Bytes::from(text)).err(), expected, "{byte} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn a_detached_copy_shares_nothing() {
        let whole = Bytes::from(b"hello".to_vec());
        let view = Utf8::from_bytes(whole.slice(1..4)).unwrap();
        assert_eq!(view.as_bytes().as_ptr(), whole[1..].as_ptr());
        let copy = view.detached();
        assert_eq!(copy, view);
        assert_ne!(copy.as_bytes().as_ptr(), view.as_bytes().as_ptr());
    }

    #[test]
    #[should_panic(expected = "U+0000")]
    fn a_static_string_with_nul_panics() {
        let _ = Utf8::from_static("a\0");
    }

    #[test]
    fn it_can_be_looked_up_by_str() {
        let set = std::collections::BTreeSet::from([Utf8::from_static("b"), Utf8::from_static("a")]);
        assert!(set.contains("a"));
        assert_eq!(set.first().unwrap(), "a");
    }
}
