//! Variable byte integers (MQTT 5.0 section 1.5.5): seven bits a byte, lowest first, at most four bytes.

use crate::DecodeError;

/// The largest number four bytes can hold.
pub(super) const MAX: u32 = 268_435_455;

pub(super) const PADDED: DecodeError = DecodeError::Malformed("a length is not in its shortest form");

/// A number read from the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VarInt {
    pub(super) value: u32,
    /// Bytes it took, 1 to 4.
    pub(super) len: usize,
    /// Whether fewer bytes could have held it.
    pub(super) padded: bool,
}

/// The number at the front of `bytes`; `None` if more bytes are needed.
pub(super) fn read(bytes: &[u8]) -> Result<Option<VarInt>, DecodeError> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some(VarInt { value, len: index + 1, padded: byte == 0 && index > 0 }));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(DecodeError::Malformed("a length of more than four bytes")) }
}

/// Bytes that `value` takes.
pub(super) const fn len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-14
    #[test]
    fn the_borders_of_the_standard_hold() {
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x7f], 127),
            (&[0x80, 0x01], 128),
            (&[0xff, 0x7f], 16_383),
            (&[0x80, 0x80, 0x01], 16_384),
            (&[0xff, 0xff, 0x7f], 2_097_151),
            (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
            (&[0xff, 0xff, 0xff, 0x7f], MAX),
        ] {
            let expected = VarInt { value, len: bytes.len(), padded: false };
            assert_eq!(read(bytes), Ok(Some(expected)));
            assert_eq!(len(usize::try_from(value).unwrap()), bytes.len());
            assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(None));
        }
    }

    /// MQ-12
    #[test]
    fn long_and_padded_forms_are_seen() {
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 0x01]).is_err());
        assert!(read(&[0x80, 0x80, 0x80, 0x80]).is_err());
        assert_eq!(read(&[0x81, 0x00]), Ok(Some(VarInt { value: 1, len: 2, padded: true })));
    }
}
