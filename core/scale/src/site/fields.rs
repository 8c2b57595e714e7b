//! Fields of a table, taken out one by one; the fields left at the end are unknown.

use sedge_base::Duration;

use super::error::{SiteError, nearest};
use super::model::Named;
use super::tree::{Key, Tree, Value};

/// The fields of one table, and the mistakes in those taken so far.
pub(super) struct Fields<'a> {
    path: String,
    line: usize,
    left: Vec<(&'a Key, &'a Tree)>,
    known: Vec<&'static str>,
    pub(super) errors: Vec<SiteError>,
    /// Resources that were referred to: line, path of the field, name.
    pub(super) references: Vec<(usize, String, String)>,
}

impl<'a> Fields<'a> {
    /// The fields of the table `tree`, which is called `path`.
    pub(super) fn of(path: &str, tree: &'a Tree) -> Self {
        let mut fields = Self {
            path: path.to_owned(),
            line: tree.line,
            left: Vec::new(),
            known: Vec::new(),
            errors: Vec::new(),
            references: Vec::new(),
        };
        match &tree.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    if fields.left.iter().any(|(other, _)| other.name == key.name) {
                        fields.error(key.line, &key.name, "is given twice; remove one");
                    } else {
                        fields.left.push((key, value));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                let problem = format!("is {}; write a table such as {{type: ...}}", tree.value.words());
                fields.errors.push(SiteError::new(tree.line, path, problem));
            }
        }
        fields
    }

    /// Where the table begins.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    fn full(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(super) fn error(&mut self, line: usize, field: &str, problem: impl Into<String>) {
        self.errors.push(SiteError::new(line, self.full(field), problem));
    }

    /// Takes a field out, if it is there and not empty.
    pub(super) fn take(&mut self, field: &'static str) -> Option<&'a Tree> {
        self.known.push(field);
        let at = self.left.iter().position(|(key, _)| key.name == field)?;
        let (key, tree) = self.left.remove(at);
        if tree.value == Value::Null {
            self.error(key.line, field, "has no value");
            return None;
        }
        Some(tree)
    }

    /// Takes a field that has to be there.
    fn must<T>(&mut self, field: &'static str, found: Option<T>, hint: &str) -> Option<T> {
        let missing = found.is_none() && !self.errors.iter().any(|error| error.field == self.full(field));
        if missing {
            let line = self.line;
            self.error(line, field, format!("is missing; {hint}"));
        }
        found
    }

    pub(super) fn text(&mut self, field: &'static str) -> Option<String> {
        let tree = self.take(field)?;
        match &tree.value {
            Value::Text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Null | Value::List(_) | Value::Map(_) => {
                self.error(tree.line, field, format!("is {}; write text", tree.value.words()));
                None
            }
        }
    }

    pub(super) fn bool(&mut self, field: &'static str, default: bool) -> bool {
        let Some(tree) = self.take(field) else { return default };
        if let Value::Bool(value) = tree.value {
            return value;
        }
        self.error(tree.line, field, format!("is {}; write true or false", tree.value.words()));
        default
    }

    pub(super) fn number(&mut self, field: &'static str) -> Option<f64> {
        let tree = self.take(field)?;
        if let Value::Number(number) = tree.value
            && number.is_finite()
        {
            return Some(number);
        }
        self.error(tree.line, field, format!("is {}; write a number", tree.value.words()));
        None
    }

    pub(super) fn number_needed(&mut self, field: &'static str) -> Option<f64> {
        let found = self.number(field);
        self.must(field, found, "write a number")
    }

    /// A whole number between two bounds.
    pub(super) fn whole(&mut self, field: &'static str, least: i32, most: i32) -> Option<i32> {
        let tree = self.take(field)?;
        let found = whole(&tree.value).filter(|number| (least..=most).contains(number));
        if found.is_none() {
            let problem = format!("is {}; write a whole number from {least} to {most}", tree.value.words());
            self.error(tree.line, field, problem);
        }
        found
    }

    /// A number of things: never negative.
    pub(super) fn count(&mut self, field: &'static str, least: i32, most: i32) -> Option<u32> {
        self.whole(field, least, most).and_then(|number| u32::try_from(number).ok())
    }

    /// One of the names of a type.
    pub(super) fn choice<T: Named>(&mut self, field: &'static str) -> Option<T> {
        let tree = self.take(field)?;
        let names = T::NAMES.iter().map(|(name, _)| *name);
        if let Value::Text(text) = &tree.value
            && let Some((_, value)) = T::NAMES.iter().find(|(name, _)| name == text)
        {
            return Some(*value);
        }
        let given = if let Value::Text(text) = &tree.value { text.as_str() } else { "" };
        let meant = nearest(given, names.clone()).map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
        let names = names.collect::<Vec<_>>().join(", ");
        // YAML itself reads the word null as nothing.
        self.error(tree.line, field, format!("{} is none of {names}{meant}", tree.value.words()));
        None
    }

    /// One of the names of a type; the field has to be there.
    pub(super) fn choice_needed<T: Named>(&mut self, field: &'static str) -> Option<T> {
        let found = self.choice(field);
        let names = T::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        self.must(field, found, &format!("write one of {names}"))
    }

    /// A duration such as `60s`.
    pub(super) fn duration(&mut self, field: &'static str) -> Option<Duration> {
        let tree = self.take(field)?;
        let found = if let Value::Text(text) = &tree.value { duration(text) } else { None };
        if found.is_none() {
            let problem =
                format!("is {}; write a duration with its unit, such as 500ms, 60s, 5m or 1h", tree.value.words());
            self.error(tree.line, field, problem);
        }
        found
    }

    /// A duration that is longer than nothing.
    pub(super) fn period(&mut self, field: &'static str, default: Duration) -> Duration {
        let line = self.left.iter().find(|(key, _)| key.name == field).map_or(self.line, |(key, _)| key.line);
        let found = self.duration(field).unwrap_or(default);
        if found < Duration::from_millis(100) {
            self.error(line, field, "is shorter than 100ms; write a longer duration");
            return default;
        }
        found
    }

    /// A size such as `2GiB`.
    pub(super) fn bytes(&mut self, field: &'static str) -> Option<u64> {
        let tree = self.take(field)?;
        let found = if let Value::Text(text) = &tree.value { bytes(text) } else { None };
        if found.is_none() {
            self.error(tree.line, field, format!("is {}; write a size such as 512MiB or 2GiB", tree.value.words()));
        }
        found
    }

    /// A reference such as `${brokers}`.
    pub(super) fn reference(&mut self, field: &'static str) -> Option<String> {
        let tree = self.take(field)?;
        let name = self.refer(tree, field)?;
        Some(name)
    }

    /// A reference that has to be there.
    pub(super) fn reference_needed(&mut self, field: &'static str) -> Option<String> {
        let found = self.reference(field);
        self.must(field, found, "write a reference such as ${brokers}")
    }

    /// A list of references, or one.
    pub(super) fn references(&mut self, field: &'static str) {
        let Some(tree) = self.take(field) else { return };
        match &tree.value {
            Value::List(items) => items.iter().for_each(|item| {
                self.refer(item, field);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => {
                self.refer(tree, field);
            }
        }
    }

    fn refer(&mut self, tree: &Tree, field: &str) -> Option<String> {
        let name = if let Value::Text(text) = &tree.value { name_of(text) } else { None };
        if let Some(name) = &name {
            self.references.push((tree.line, self.full(field), name.clone()));
        } else {
            let problem = format!("is {}; write a reference such as \"${{brokers}}\"", tree.value.words());
            self.error(tree.line, field, problem);
        }
        name
    }

    /// Everything that is left, as text: for plain resources, whose fields are the driver's business.
    pub(super) fn rest(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (key, tree) in core::mem::take(&mut self.left) {
            match &tree.value {
                Value::Text(text) => {
                    if let Some(name) = name_of(text) {
                        self.references.push((tree.line, self.full(&key.name), name));
                    }
                    found.push((key.name.clone(), text.clone()));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => found.push((key.name.clone(), tree.value.words())),
                Value::List(_) | Value::Map(_) => {
                    self.error(tree.line, &key.name, format!("is {}; write one value", tree.value.words()));
                }
            }
        }
        found
    }

    /// Ends the reading: the fields that are left are unknown.
    pub(super) fn finish(&mut self) {
        for (key, _) in core::mem::take(&mut self.left) {
            let meant = nearest(&key.name, self.known.iter().copied());
            let meant = meant.map_or_else(
                || format!("known are {}", self.known.join(", ")),
                |name| format!("did you mean {name:?}?"),
            );
            self.error(key.line, &key.name, format!("is not known here; {meant}"));
        }
    }
}

/// The name in `${name}`.
fn name_of(text: &str) -> Option<String> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// A number as a whole one, if it is.
pub(super) fn whole(value: &Value) -> Option<i32> {
    let Value::Number(number) = value else { return None };
    let fits = number.fract() == 0.0 && *number >= f64::from(i32::MIN) && *number <= f64::from(i32::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
    fits.then_some(*number as i32)
}

/// A duration such as `1.5s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        "d" => number * 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// A size such as `2GiB`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    let size = number * f64::from(1_u32 << 10).powi(shift / 10);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked in the same line")]
    (0.0..9e18).contains(&size).then_some(size as u64)
}

/// A number that is not negative, and the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at_checked(at)?;
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(duration("60s"), Some(Duration::from_mins(1)));
        assert_eq!(duration("1.5 h"), Some(Duration::from_mins(90)));
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        for wrong in ["60", "s", "-1s", "1 fortnight", "", "1e999s", "1..2s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        assert_eq!(
            (bytes("2GiB"), bytes("1.5KiB"), bytes("12B"), bytes("2GB")),
            (Some(2 << 30), Some(1536), Some(12), None)
        );
    }
}
