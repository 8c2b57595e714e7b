//! Frames between a rule and its worker: each is a length (32 bits, big-endian) and as many bytes.
//!
//! The first frame to a worker is most outputs and most bytes of outputs (32 bits each) and the program; each further one is a message. An answer to each,
//! the first too, is a kind and, of outputs, for each a kind, a length and the bytes; else a text.

use std::io::{self, Read, Write};

use sedge_jq::{Bounds, Failure, Output};
use sedge_rules::{Made, TransformError};

/// Longest frame: a message of the largest `max_payload` as a JSON text, or the largest `max_output`, with room.
pub(super) const FRAME_MAX: usize = 128 << 20;
const OUTPUTS: u8 = 0;
const FAILED: u8 = 1;
const OVER_BUDGET: u8 = 2;
const JSON: u8 = 0;
const TEXT: u8 = 1;

pub(super) fn write(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= FRAME_MAX);
    let length = length.ok_or_else(|| io::Error::other("a frame is too long"))?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(bytes)?;
    out.flush()
}

pub(super) fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn hello(program: &str, bounds: Bounds) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    [&word(bounds.outputs)[..], &word(bounds.bytes), program.as_bytes()].concat()
}

pub(super) fn read_hello(frame: &[u8]) -> Option<(&str, Bounds)> {
    let (outputs, rest) = frame.split_first_chunk()?;
    let (bytes, program) = rest.split_first_chunk()?;
    let word = |bytes: &[u8; 4]| usize::try_from(u32::from_be_bytes(*bytes)).ok();
    Some((core::str::from_utf8(program).ok()?, Bounds { outputs: word(outputs)?, bytes: word(bytes)? }))
}

pub(super) fn answer(result: Result<Vec<Output>, Failure>) -> Vec<u8> {
    let outputs = match result {
        Ok(outputs) => outputs,
        Err(failure) => {
            let kind = if matches!(failure, Failure::Error(_)) { FAILED } else { OVER_BUDGET };
            return [&[kind][..], failure.to_string().as_bytes()].concat();
        }
    };
    let mut frame = vec![OUTPUTS];
    for output in &outputs {
        let (kind, text) = match output {
            Output::Json(text) => (JSON, text),
            Output::Text(text) => (TEXT, text),
        };
        frame.push(kind);
        frame.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend_from_slice(text);
    }
    frame
}

/// `None`: that is no answer.
pub(super) fn read_answer(frame: &[u8]) -> Option<Result<Vec<Made>, TransformError>> {
    let (kind, mut rest) = frame.split_first()?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    match *kind {
        FAILED => return Some(Err(TransformError::Failed(text()))),
        OVER_BUDGET => return Some(Err(TransformError::OverBudget(text()))),
        OUTPUTS => {}
        _ => return None,
    }
    let mut outputs = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        let (length, after) = after.split_first_chunk()?;
        let (text, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        let text = bytes::Bytes::copy_from_slice(text);
        outputs.push(match *kind {
            JSON => Made::Json(text),
            TEXT => Made::Text(text),
            _ => return None,
        });
        rest = after;
    }
    Some(Ok(outputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole frames come back as they were written; a truncated frame gives no answer, and nothing panics.
    #[test]
    fn frames_come_back() {
        let bounds = Bounds { outputs: 3, bytes: 70_000 };
        assert_eq!(read_hello(&hello(".a", bounds)), Some((".a", bounds)));
        assert_eq!(read_hello(&[0; 7]), None);
        let outputs = vec![Output::Json(b"{}".to_vec()), Output::Text(Vec::new())];
        let frame = answer(Ok(outputs));
        let made = vec![Made::Json("{}".into()), Made::Text("".into())];
        assert_eq!(read_answer(&frame), Some(Ok(made)));
        for end in 0..frame.len() {
            read_answer(&frame[..end]);
        }
        assert_eq!(
            read_answer(&answer(Err(Failure::Error("e".into())))),
            Some(Err(TransformError::Failed("e".into())))
        );
        let over = read_answer(&answer(Err(Failure::Outputs(3))));
        assert_eq!(over, Some(Err(TransformError::OverBudget("more than 3 outputs".into()))));
        let mut bytes = Vec::new();
        write(&mut bytes, b"abc").expect("a Vec takes everything");
        assert_eq!(read(&mut &bytes[..]).expect("a frame"), b"abc");
        assert!(read(&mut &[0xff_u8; 8][..]).is_err(), "too long");
    }
}
