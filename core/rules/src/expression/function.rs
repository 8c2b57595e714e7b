//! Functions that look at one message, and two that look at the window.

use std::borrow::Cow;

use crate::value::Value;

/// Longest text that a function makes, in bytes.
const TEXT_MAX: usize = 64 << 10;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Ceil,
    Coalesce,
    Concat,
    Contains,
    EndsWith,
    Exists,
    Floor,
    If,
    Length,
    Lower,
    Number,
    Round,
    Sqrt,
    StartsWith,
    Text,
    Upper,
    WindowEnd,
    WindowStart,
}

/// Name, function, least and most arguments.
pub(crate) const FUNCTIONS: [(&str, Function, usize, usize); 19] = [
    ("abs", Function::Abs, 1, 1),
    ("ceil", Function::Ceil, 1, 1),
    ("coalesce", Function::Coalesce, 1, 16),
    ("concat", Function::Concat, 1, 16),
    ("contains", Function::Contains, 2, 2),
    ("ends_with", Function::EndsWith, 2, 2),
    ("exists", Function::Exists, 1, 1),
    ("floor", Function::Floor, 1, 1),
    ("if", Function::If, 3, 3),
    ("length", Function::Length, 1, 1),
    ("lower", Function::Lower, 1, 1),
    ("number", Function::Number, 1, 1),
    ("round", Function::Round, 1, 2),
    ("sqrt", Function::Sqrt, 1, 1),
    ("starts_with", Function::StartsWith, 2, 2),
    ("text", Function::Text, 1, 1),
    ("upper", Function::Upper, 1, 1),
    ("window_end", Function::WindowEnd, 0, 0),
    ("window_start", Function::WindowStart, 0, 0),
];

impl Function {
    pub(super) const fn can_be_true(self) -> bool {
        matches!(self, Self::Coalesce | Self::Contains | Self::EndsWith | Self::Exists | Self::If | Self::StartsWith)
    }

    /// Whether it looks at the window.
    pub(crate) const fn needs_window(self) -> bool {
        matches!(self, Self::WindowEnd | Self::WindowStart)
    }

    /// The function's value for these arguments; `window` holds the begin and end of the window.
    pub(super) fn call<'a>(self, arguments: &mut [Value<'a>], window: Option<(u64, u64)>) -> Value<'a> {
        let two_texts = |test: fn(&str, &str) -> bool| match (arguments.first(), arguments.get(1)) {
            (Some(Value::Text(one)), Some(Value::Text(two))) => Value::Bool(test(one, two)),
            _ => Value::Bool(false),
        };
        match self {
            Self::Contains => return two_texts(|one, two| one.contains(two)),
            Self::EndsWith => return two_texts(|one, two| one.ends_with(two)),
            Self::StartsWith => return two_texts(|one, two| one.starts_with(two)),
            Self::Concat => {
                let mut text = String::new();
                for argument in &*arguments {
                    argument.write_plain(&mut text);
                }
                return made(text);
            }
            Self::Coalesce => {
                let first = arguments.iter_mut().find(|value| **value != Value::Null);
                return first.map_or(Value::Null, |first| core::mem::replace(first, Value::Null));
            }
            Self::If => {
                let chosen = if arguments.first().is_some_and(Value::is_true) { 1 } else { 2 };
                return arguments.get_mut(chosen).map_or(Value::Null, |value| core::mem::replace(value, Value::Null));
            }
            Self::Round => return round(arguments),
            Self::WindowStart => return window.map_or(Value::Null, |(start, _)| Value::count(start)),
            Self::WindowEnd => return window.map_or(Value::Null, |(_, end)| Value::count(end)),
            Self::Abs
            | Self::Ceil
            | Self::Exists
            | Self::Floor
            | Self::Length
            | Self::Lower
            | Self::Number
            | Self::Sqrt
            | Self::Text
            | Self::Upper => {}
        }
        let first = arguments.first_mut().map_or(Value::Null, |first| core::mem::replace(first, Value::Null));
        self.of_one(first)
    }

    fn of_one<'a>(self, value: Value<'a>) -> Value<'a> {
        let of_number = |compute: fn(f64) -> f64, value: &Value<'a>| {
            value.as_number().map_or(Value::Null, |number| Value::number(compute(number)))
        };
        let of_text = |compute: fn(&str) -> String, value: &Value<'a>| {
            value.as_text().map_or(Value::Null, |text| made(compute(text)))
        };
        match self {
            Self::Abs => of_number(f64::abs, &value),
            Self::Ceil => of_number(f64::ceil, &value),
            Self::Floor => of_number(f64::floor, &value),
            Self::Sqrt => of_number(f64::sqrt, &value),
            Self::Lower => of_text(str::to_lowercase, &value),
            Self::Upper => of_text(str::to_uppercase, &value),
            Self::Exists => Value::Bool(value != Value::Null),
            Self::Length => value
                .as_text()
                .map_or(Value::Null, |text| Value::count(u64::try_from(text.chars().count()).unwrap_or(u64::MAX))),
            Self::Number => match value {
                Value::Text(text) => text.trim().parse().map_or(Value::Null, Value::number),
                Value::Bool(flag) => Value::Number(f64::from(u8::from(flag))),
                number @ Value::Number(_) => number,
                Value::Null | Value::Json(_) => Value::Null,
            },
            Self::Text => match value {
                Value::Null => Value::Null,
                text @ Value::Text(_) => text,
                other @ (Value::Bool(_) | Value::Number(_) | Value::Json(_)) => {
                    let mut text = String::new();
                    other.write_plain(&mut text);
                    made(text)
                }
            },
            Self::Coalesce
            | Self::Concat
            | Self::Contains
            | Self::EndsWith
            | Self::If
            | Self::Round
            | Self::StartsWith
            | Self::WindowEnd
            | Self::WindowStart => Value::Null,
        }
    }
}

fn made<'a>(text: String) -> Value<'a> {
    if text.len() > TEXT_MAX { Value::Null } else { Value::Text(Cow::Owned(text)) }
}

/// A number with so many digits behind the point; none without a second argument.
fn round<'a>(arguments: &[Value<'a>]) -> Value<'a> {
    let Some(number) = arguments.first().and_then(Value::as_number) else { return Value::Null };
    let digits = arguments.get(1).map_or(Some(0.0), Value::as_number);
    let Some(digits) = digits.filter(|digits| (0.0..=15.0).contains(digits)) else { return Value::Null };
    let factor = 10_f64.powf(digits.floor());
    let scaled = number * factor;
    // Where the shift leads out of all numbers, there is nothing behind the point.
    if scaled.is_finite() { Value::number(scaled.round() / factor) } else { Value::number(number) }
}
