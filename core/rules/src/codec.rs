//! Values and numbers as bytes, for groups' keys and for state that outlives the process. Numbers are big-endian.

use std::borrow::Cow;

use crate::value::Value;

/// Appends.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn f64(&mut self, number: f64) {
        self.u64(number.to_bits());
    }

    /// A count of what follows.
    pub(crate) fn len(&mut self, count: usize) {
        self.0.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.u8(0),
            Value::Bool(flag) => self.u8(1 + u8::from(*flag)),
            Value::Number(number) => {
                self.u8(3);
                self.f64(if *number == 0.0 { 0.0 } else { *number });
            }
            Value::Text(text) => {
                self.u8(4);
                self.bytes(text.as_bytes());
            }
            Value::Json(text) => {
                self.u8(5);
                self.bytes(text.as_bytes());
            }
        }
    }
}

/// Reads what a [`Writer`] has written; `None` where something else lies there.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// A count or a time in milliseconds: below 2^53, so that no arithmetic leads out of 64 bits.
    pub(crate) fn count(&mut self) -> Option<u64> {
        self.u64().filter(|number| *number < 1 << 53)
    }

    /// A number that is finite.
    pub(crate) fn f64(&mut self) -> Option<f64> {
        self.u64().map(f64::from_bits).filter(|number| number.is_finite())
    }

    /// A count of entries that take at least this many bytes each: never more than the rest can hold.
    pub(crate) fn len(&mut self, least: usize) -> Option<usize> {
        let count = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        let count = usize::try_from(count).ok()?;
        (count.checked_mul(least)? <= self.0.len()).then_some(count)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.len(1)?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn value(&mut self) -> Option<Value<'a>> {
        Some(match self.u8()? {
            0 => Value::Null,
            1 => Value::Bool(false),
            2 => Value::Bool(true),
            3 => Value::Number(self.f64()?),
            4 => Value::Text(Cow::Borrowed(self.text()?)),
            5 => Value::Json(Cow::Borrowed(self.text()?)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Bool(false),
            Value::Number(-1.5),
            Value::text("ü"),
            Value::Json("[]".into()),
        ];
        let mut writer = Writer::default();
        for value in &values {
            writer.value(value);
        }
        let mut reader = Reader(&writer.0);
        for value in values {
            assert_eq!(reader.value(), Some(value));
        }
        assert_eq!(reader.value(), None);
    }

    #[test]
    fn a_count_beyond_the_rest_is_refused() {
        assert_eq!(Reader(&[0xff, 0xff, 0xff, 0xff, 1]).bytes(), None);
    }
}
