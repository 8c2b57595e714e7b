//! Values by the type that births give them (specification, chapter 6).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Number of the type of truth values.
pub(crate) const BOOLEAN: u32 = 11;

/// Names of the types by their numbers.
const NAMES: [&str; 35] = [
    "Unknown",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float",
    "Double",
    "Boolean",
    "String",
    "DateTime",
    "Text",
    "UUID",
    "DataSet",
    "Bytes",
    "File",
    "Template",
    "PropertySet",
    "PropertySetList",
    "Int8Array",
    "Int16Array",
    "Int32Array",
    "Int64Array",
    "UInt8Array",
    "UInt16Array",
    "UInt32Array",
    "UInt64Array",
    "FloatArray",
    "DoubleArray",
    "BooleanArray",
    "StringArray",
    "DateTimeArray",
];

/// Name of a type.
pub(crate) fn name(datatype: u32) -> &'static str {
    usize::try_from(datatype).ok().and_then(|number| NAMES.get(number)).unwrap_or(&NAMES[0])
}

/// A value that has no parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Signed(i64),
    Unsigned(u64),
    Float(f32),
    Double(f64),
    Boolean(bool),
    Text(&'a str),
}

/// A whole number of up to 32 bits: negative ones come as their two's complement, whose upper bits not every sender fills.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the type says how many bits count")]
pub(crate) const fn int(value: u32, datatype: u32) -> Scalar<'static> {
    match datatype {
        1 => Scalar::Signed(value as u8 as i8 as i64),
        2 => Scalar::Signed(value as u16 as i16 as i64),
        3 | 4 => Scalar::Signed(value as i32 as i64),
        BOOLEAN => Scalar::Boolean(value != 0),
        _ => Scalar::Unsigned(value as u64),
    }
}

/// A whole number of up to 64 bits.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the type says how many bits count")]
pub(crate) const fn long(value: u64, datatype: u32) -> Scalar<'static> {
    match datatype {
        1 => Scalar::Signed(value as u8 as i8 as i64),
        2 => Scalar::Signed(value as u16 as i16 as i64),
        3 => Scalar::Signed(value as u32 as i32 as i64),
        4 => Scalar::Signed(value as i64),
        _ => Scalar::Unsigned(value),
    }
}

/// Elements of an array that travels as bytes (specification, chapter 6).
pub(crate) enum Elements<'a> {
    /// Numbers of the same width.
    Numbers(Vec<Scalar<'a>>),
    /// Anything else: the bytes as text.
    Bytes(String),
}

/// Numbers of `N` bytes each; `None` if the bytes do not come out even.
fn numbers<'a, const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> Scalar<'a>) -> Option<Vec<Scalar<'a>>> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then(|| chunks.iter().map(|chunk| read(*chunk)).collect())
}

/// Truth values: how many there are, and a bit for each, from the highest of the first byte on.
fn booleans(bytes: &[u8]) -> Option<Vec<Scalar<'static>>> {
    let (count, bits) = bytes.split_first_chunk::<4>()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    if count.div_ceil(8) != bits.len() {
        return None;
    }
    let bit = |number: usize| bits.get(number / 8).is_some_and(|byte| byte >> (7 - number % 8) & 1 == 1);
    Some((0..count).map(|number| Scalar::Boolean(bit(number))).collect())
}

/// Texts, each with a zero behind it.
fn texts(bytes: &[u8]) -> Option<Vec<Scalar<'_>>> {
    let Some((0, texts)) = bytes.split_last() else { return bytes.is_empty().then(Vec::new) };
    texts.split(|byte| *byte == 0).map(|text| core::str::from_utf8(text).ok().map(Scalar::Text)).collect()
}

/// The elements that bytes of this type hold.
pub(crate) fn elements(bytes: &[u8], datatype: u32) -> Elements<'_> {
    let found = match datatype {
        22 => numbers(bytes, |chunk| Scalar::Signed(i8::from_le_bytes(chunk).into())),
        23 => numbers(bytes, |chunk| Scalar::Signed(i16::from_le_bytes(chunk).into())),
        24 => numbers(bytes, |chunk| Scalar::Signed(i32::from_le_bytes(chunk).into())),
        25 => numbers(bytes, |chunk| Scalar::Signed(i64::from_le_bytes(chunk))),
        26 => numbers(bytes, |chunk| Scalar::Unsigned(u8::from_le_bytes(chunk).into())),
        27 => numbers(bytes, |chunk| Scalar::Unsigned(u16::from_le_bytes(chunk).into())),
        28 => numbers(bytes, |chunk| Scalar::Unsigned(u32::from_le_bytes(chunk).into())),
        29 | 34 => numbers(bytes, |chunk| Scalar::Unsigned(u64::from_le_bytes(chunk))),
        30 => numbers(bytes, |chunk| Scalar::Float(f32::from_le_bytes(chunk))),
        31 => numbers(bytes, |chunk| Scalar::Double(f64::from_le_bytes(chunk))),
        32 => booleans(bytes),
        33 => texts(bytes),
        _ => None,
    };
    found.map_or_else(|| Elements::Bytes(STANDARD.encode(bytes)), Elements::Numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_the_sign_of_their_type() {
        assert_eq!(int(0xff, 1), Scalar::Signed(-1), "eight bits");
        assert_eq!(int(0xffff_ffff, 1), Scalar::Signed(-1), "filled up");
        assert_eq!(int(0xffff_ffff, 3), Scalar::Signed(-1));
        assert_eq!(int(0xffff_ffff, 7), Scalar::Unsigned(0xffff_ffff));
        assert_eq!(long(u64::MAX, 4), Scalar::Signed(-1));
        assert_eq!(long(u64::MAX, 8), Scalar::Unsigned(u64::MAX));
        assert_eq!(long(0xffff_fffe, 3), Scalar::Signed(-2));
    }

    #[test]
    fn arrays_are_read_and_what_is_none_stays_bytes() {
        let read = |bytes, datatype| match elements(bytes, datatype) {
            Elements::Numbers(numbers) => Ok(numbers),
            Elements::Bytes(text) => Err(text),
        };
        assert_eq!(read(&[1, 0xff], 22), Ok(vec![Scalar::Signed(1), Scalar::Signed(-1)]));
        assert_eq!(read(&[1, 0, 2, 0], 27), Ok(vec![Scalar::Unsigned(1), Scalar::Unsigned(2)]));
        assert_eq!(read(&[1, 0, 2], 27), Err("AQAC".to_owned()));
        let bits = [true, false, true].map(Scalar::Boolean).to_vec();
        assert_eq!(read(&[3, 0, 0, 0, 0b1010_0000], 32), Ok(bits));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 1], 32), Err("/////wE=".to_owned()), "a count without bits");
        assert_eq!(read(b"a\0\0bc\0", 33), Ok(["a", "", "bc"].map(Scalar::Text).to_vec()));
        assert_eq!(read(b"", 33), Ok(Vec::new()));
        assert_eq!(read(b"ab", 33), Err("YWI=".to_owned()), "no zero at the end");
    }
}
