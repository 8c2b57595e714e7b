//! Values that expressions work on.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;

/// A value of a message, a constant or a result. A field that a message does not have is [`Value::Null`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// Nothing: also what an operation gives that makes no sense.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, finite.
    Number(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// The text of a JSON object or array.
    Json(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// A number, or nothing where arithmetic led out of them.
    pub(crate) fn number(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Null }
    }

    /// A number that counts something.
    pub(crate) fn count(count: u64) -> Self {
        Self::Number(from_u64(count))
    }

    /// A text of somebody else.
    pub(crate) const fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// The number, if it is one.
    pub(crate) const fn as_number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// The text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Whether it is true; everything but `true` is not.
    pub(crate) const fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    /// How two numbers or two texts lie to each other; other pairs have no order.
    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => one.partial_cmp(two),
            (Self::Text(one), Self::Text(two)) => Some(one.cmp(two)),
            _ => None,
        }
    }

    /// As it stands within a topic or a text: texts without quotes.
    pub(crate) fn write_plain(&self, out: &mut String) {
        match self {
            Self::Text(text) | Self::Json(text) => out.push_str(text),
            Self::Null | Self::Bool(_) | Self::Number(_) => self.write_json(out),
        }
    }

    /// As JSON.
    pub(crate) fn write_json(&self, out: &mut String) {
        match self {
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => write_number(*number, out),
            Self::Text(text) => write_text(text, out),
            Self::Json(text) if crate::json::is_valid(text.as_bytes()) => out.push_str(text),
            Self::Null | Self::Json(_) => out.push_str("null"),
        }
    }
}

/// The nearest number with a fraction.
#[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
pub(crate) const fn from_u64(number: u64) -> f64 {
    number as f64
}

/// A whole number that is not negative, if it is one below 2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
pub(crate) fn to_u64(number: f64) -> Option<u64> {
    const END: f64 = 9_007_199_254_740_992.0;
    (0.0..END).contains(&number).then(|| number.floor() as u64)
}

/// A number as JSON: without a fraction where it has none, else the shortest that reads as the same.
fn write_number(number: f64, out: &mut String) {
    let whole = number.fract() == 0.0 && number.abs() < 1e15;
    let written = if whole { write!(out, "{number:.0}") } else { write!(out, "{number:?}") };
    debug_assert!(written.is_ok(), "a String takes everything");
}

/// A text as JSON string.
pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => {
                let written = write!(out, "\\u{:04x}", u32::from(char));
                debug_assert!(written.is_ok(), "a String takes everything");
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value<'_>) -> String {
        let mut out = String::new();
        value.write_json(&mut out);
        out
    }

    #[test]
    fn values_are_written_as_json() {
        assert_eq!(json(&Value::Number(21.0)), "21");
        assert_eq!(json(&Value::Number(-0.5)), "-0.5");
        assert_eq!(json(&Value::Number(1e300)), "1e300");
        assert_eq!(json(&Value::text("a\"\n\u{1}ü")), "\"a\\\"\\n\\u0001ü\"");
        assert_eq!(json(&Value::Json("[1, 2".into())), "null");
        assert_eq!(json(&Value::number(f64::NAN)), "null");
    }
}
