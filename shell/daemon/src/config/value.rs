//! A configured value, from the file (typed) or from the environment and flags (text), read as what its key wants.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use toml::de::DeValue;

/// A value before it is known what its key wants.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A string of the file.
    Text(String),
    /// An integer of the file.
    Integer(i64),
    /// A boolean of the file.
    Bool(bool),
    /// An array of strings of the file.
    List(Vec<String>),
    /// Anything else of the file, by name of its type.
    Other(&'static str),
    /// From the environment or a flag: text that is read as whatever its key wants.
    Plain(String),
}

type Read<T> = Result<T, String>;

impl Value {
    pub(super) fn from_toml(value: &DeValue<'_>) -> Self {
        if let Some(text) = value.as_str() {
            return Self::Text(text.to_owned());
        }
        if let Some(integer) = value.as_integer() {
            let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
            return parsed.map_or(Self::Other("integer beyond 64 bits"), Self::Integer);
        }
        if let Some(flag) = value.as_bool() {
            return Self::Bool(flag);
        }
        if let Some(array) = value.as_array() {
            let texts: Option<Vec<String>> =
                array.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
            return texts.map_or(Self::Other("array with something other than strings in it"), Self::List);
        }
        Self::Other(value.type_str())
    }

    /// The text of a string, whoever gave it.
    fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) | Self::Plain(text) = self { Some(text) } else { None }
    }

    pub(super) fn text(&self) -> Read<String> {
        self.as_text().map(str::to_owned).ok_or_else(|| self.instead_of("a string"))
    }

    pub(super) fn parsed<T: FromStr>(&self, wanted: &str) -> Read<T> {
        let text = self.as_text().ok_or_else(|| self.instead_of(wanted))?;
        text.trim().parse().ok().ok_or_else(|| format!("{text:?} is not {wanted}"))
    }

    pub(super) fn ip(&self) -> Read<IpAddr> {
        self.parsed("an IP address such as \"0.0.0.0\" or \"::\"")
    }

    pub(super) fn flag(&self) -> Read<bool> {
        if let Self::Bool(flag) = self {
            return Ok(*flag);
        }
        let Self::Plain(text) = self else { return Err(self.instead_of("true or false")) };
        match text.as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(&self, least: u64, most: u64) -> Read<u64> {
        let number = if let Self::Integer(number) = self {
            i128::from(*number)
        } else {
            let Self::Plain(text) = self else { return Err(self.instead_of("a whole number")) };
            let digits = text.trim().replace('_', "");
            digits.parse().ok().ok_or_else(|| format!("{text:?} is not a whole number"))?
        };
        let fits = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
        fits.ok_or_else(|| format!("{number} is not between {least} and {most}"))
    }

    pub(super) fn narrow<T: TryFrom<u64>>(&self, least: u64, most: u64) -> Read<T> {
        let number = self.number(least, most)?;
        T::try_from(number).ok().ok_or_else(|| format!("{number} is too large for this machine"))
    }

    /// A port; 0 stands for any free one.
    pub(super) fn port(&self) -> Read<u16> {
        self.narrow(0, u64::from(u16::MAX))
    }

    /// Bytes: a number, or text such as `64KiB`.
    pub(super) fn size<T: TryFrom<u64>>(&self, least: u64, most: u64) -> Read<T> {
        let Some(text) = self.as_text() else { return self.narrow(least, most) };
        let (digits, unit) = split_unit(text);
        let wrong = || format!("{text:?} is not a size such as 65536, \"64KiB\" or \"1MiB\"");
        let factor = match unit {
            "" | "B" => 1,
            "KiB" | "K" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().ok().ok_or_else(wrong)?;
        let bytes = i64::try_from(number.saturating_mul(factor)).unwrap_or(i64::MAX);
        Self::Integer(bytes).narrow(least, most)
    }

    /// A time: a number of seconds, or text such as `500ms`.
    pub(super) fn duration(&self, least: Duration, most: Duration) -> Read<Duration> {
        let time = match self.as_text() {
            Some(text) => parse_duration(text)?,
            None => Duration::from_secs(self.number(0, u64::from(u32::MAX))?),
        };
        if time < least || time > most {
            return Err(format!("{time:?} is not between {least:?} and {most:?}"));
        }
        Ok(time)
    }

    /// As [`Self::duration`], or 0, which means never.
    pub(super) fn duration_or_zero(&self, least: Duration, most: Duration) -> Read<Duration> {
        let time = self.duration(Duration::ZERO, most)?;
        if !time.is_zero() && time < least {
            return Err(format!("{time:?} is neither 0 nor between {least:?} and {most:?}"));
        }
        Ok(time)
    }

    /// Whole seconds as [`Self::duration`] reads them.
    pub(super) fn seconds(&self, most: u32) -> Read<u32> {
        let time = self.duration(Duration::ZERO, Duration::from_secs(u64::from(most)))?;
        u32::try_from(time.as_secs()).ok().ok_or_else(|| "too long".to_owned())
    }

    /// A list of strings; as text, separated by commas.
    pub(super) fn list(&self) -> Read<Vec<String>> {
        if let Self::List(items) = self {
            return Ok(items.clone());
        }
        let Self::Plain(text) = self else { return Err(self.instead_of("a list of strings")) };
        Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Read<T> {
        let names = || words.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
        let text = self.as_text().ok_or_else(|| self.instead_of(&names()))?;
        let found = words.iter().find(|&&(name, _)| name == text);
        found.map(|&(_, choice)| choice).ok_or_else(|| format!("{text:?} is not {}", names()))
    }

    /// One of a few whole numbers.
    pub(super) fn one_of<T: Copy>(&self, numbers: &[(u64, T)]) -> Read<T> {
        let names = || numbers.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(" or ");
        let written = match self {
            Self::Integer(number) => number.to_string(),
            Self::Plain(text) => text.trim().to_owned(),
            Self::Text(_) | Self::Bool(_) | Self::List(_) | Self::Other(_) => return Err(self.instead_of(&names())),
        };
        let found = numbers.iter().find(|(known, _)| known.to_string() == written);
        found.map(|&(_, choice)| choice).ok_or_else(|| format!("{written} is not {}", names()))
    }

    fn instead_of(&self, wanted: &str) -> String {
        let found = match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::List(_) => "a list",
            Self::Other(kind) => kind,
            Self::Plain(_) => "text",
        };
        format!("must be {wanted}, not {found}")
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (digits, unit.trim())
}

fn parse_duration(text: &str) -> Read<Duration> {
    let wrong = || format!("{text:?} is not a time such as 10, \"10s\", \"500ms\", \"5m\" or \"1h\"");
    let (digits, unit) = split_unit(text);
    let number: u64 = digits.parse().ok().ok_or_else(wrong)?;
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_millis(number.saturating_mul(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Value {
        Value::Plain(text.to_owned())
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(plain("64KiB").size(0, 1 << 20), Ok(65_536_u32));
        assert_eq!(plain("7").size(0, 10), Ok(7_usize));
        assert!(plain("64KB").size::<u32>(0, 1 << 20).is_err());
        assert!(plain("2MiB").size::<u32>(0, 1 << 20).is_err());
        let hour = Duration::from_hours(1);
        assert_eq!(plain("500ms").duration(Duration::ZERO, hour), Ok(Duration::from_millis(500)));
        assert_eq!(Value::Integer(3).duration(Duration::ZERO, hour), Ok(Duration::from_secs(3)));
        assert!(plain("2h").duration(Duration::ZERO, hour).is_err());
        assert_eq!(Value::Integer(0).duration_or_zero(hour, hour), Ok(Duration::ZERO));
        assert!(plain("1ms").duration_or_zero(Duration::from_secs(1), hour).is_err());
        assert!(plain("soon").duration(Duration::ZERO, hour).is_err());
    }

    #[test]
    fn numbers_are_checked_before_they_are_narrowed() {
        assert_eq!(Value::Integer(65_535).port(), Ok(65_535));
        assert_eq!(Value::Integer(65_536).port(), Err("65536 is not between 0 and 65535".to_owned()));
        assert_eq!(plain("-1").port(), Err("-1 is not between 0 and 65535".to_owned()));
        assert!(Value::Text("1883".to_owned()).port().is_err());
    }
}
