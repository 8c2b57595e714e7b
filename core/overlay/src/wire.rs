//! Functions that read and write the signals of all algorithms. All numbers are big-endian; reading is strict.

use bytes::{Buf, BufMut, BytesMut};

/// Why bytes are no signal, or none that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignalError {
    #[error("the signal ends too early")]
    Truncated,
    #[error("bytes behind the end of the signal")]
    Trailing,
    #[error("signal version {0} is not supported")]
    Version(u8),
    #[error("{0} has a value that cannot be")]
    Value(&'static str),
    #[error("a signal, or a piece of a snapshot, without content")]
    Empty,
    #[error("more than {0} topics are advertised")]
    Topics(usize),
    #[error("its membership vectors have another base: cluster.skip_graph_base has to be the same at all nodes")]
    Base,
}

type Result<T> = core::result::Result<T, SignalError>;

pub(crate) fn get_u8(input: &mut &[u8]) -> Result<u8> {
    input.try_get_u8().ok().ok_or(SignalError::Truncated)
}

pub(crate) fn get_u16(input: &mut &[u8]) -> Result<u16> {
    input.try_get_u16().ok().ok_or(SignalError::Truncated)
}

pub(crate) fn get_u32(input: &mut &[u8]) -> Result<u32> {
    input.try_get_u32().ok().ok_or(SignalError::Truncated)
}

pub(crate) fn get_u64(input: &mut &[u8]) -> Result<u64> {
    input.try_get_u64().ok().ok_or(SignalError::Truncated)
}

pub(crate) fn get_bool(input: &mut &[u8], what: &'static str) -> Result<bool> {
    match get_u8(input)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(SignalError::Value(what)),
    }
}

/// A text behind its length of 16 bits.
pub(crate) fn get_text<'a>(input: &mut &'a [u8], what: &'static str) -> Result<&'a str> {
    let len = usize::from(get_u16(input)?);
    let (text, rest) = input.split_at_checked(len).ok_or(SignalError::Truncated)?;
    *input = rest;
    core::str::from_utf8(text).ok().ok_or(SignalError::Value(what))
}

/// The caller has seen to it that the text is no longer than 65,535 bytes.
pub(crate) fn put_text(text: &str, out: &mut BytesMut) {
    out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    out.put_slice(text.as_bytes());
}

/// A kind of signal, and numbers behind it.
pub(crate) fn put_numbers(kind: u8, numbers: &[u64], out: &mut BytesMut) {
    out.put_u8(kind);
    for number in numbers {
        out.put_u64(*number);
    }
}
