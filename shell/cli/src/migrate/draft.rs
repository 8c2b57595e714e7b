//! The configuration that comes into being, and the outcome for each line of the old file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::read::{Line, Place};

/// Outcome for a line of the old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The line is this key with this value, in TOML.
    Set(String, String),
    /// The same, with a remark about a difference.
    Roughly(String, String, String),
    /// Sedge does what the line says without a setting; the reason.
    AsItIs(String),
    /// The line cannot be carried over: why, and what to do.
    Lost(String),
}

impl Fate {
    pub(super) fn lost(why: impl Into<String>) -> Self {
        Self::Lost(why.into())
    }

    pub(super) fn as_it_is(why: impl Into<String>) -> Self {
        Self::AsItIs(why.into())
    }

    pub(super) fn roughly(key: impl Into<String>, value: impl Into<String>, remark: impl Into<String>) -> Self {
        Self::Roughly(key.into(), value.into(), remark.into())
    }

    pub(super) fn set(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Set(key.into(), value.into())
    }
}

/// A text as TOML has it: its basic strings have the escapes of JSON, and want one more.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A key and why it is there.
#[derive(Debug)]
struct Setting {
    value: String,
    /// The lines it comes from, and remarks.
    comments: Vec<String>,
    /// Line 0: no line stands for it.
    from: Place,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Draft {
    settings: BTreeMap<String, Setting>,
    /// Lines that were not carried over: place, line, reason.
    pub(super) lost: Vec<(Option<Place>, String, String)>,
    /// Lines that need no setting: place, line, reason.
    pub(super) as_it_is: Vec<(Place, String, String)>,
}

impl Draft {
    /// Notes the outcome for a line.
    pub(super) fn note(&mut self, line: &Line, fate: Fate) {
        let text = shown(line);
        let (key, value, remark) = match fate {
            Fate::Set(key, value) => (key, value, None),
            Fate::Roughly(key, value, remark) => (key, value, Some(remark)),
            Fate::AsItIs(why) => return self.as_it_is.push((line.at.clone(), text, why)),
            Fate::Lost(why) => return self.lost.push((Some(line.at.clone()), text, why)),
        };
        let mut comments = vec![format!("{}: {text}", line.at)];
        comments.extend(remark);
        let old = self.settings.insert(key.clone(), Setting { value, comments, from: line.at.clone() });
        if let Some(old) = old.filter(|old| old.from.number > 0) {
            let text = old.comments.first().and_then(|text| text.split_once(": ")).map_or("", |(_, text)| text);
            let why = format!("{} sets {key}, too, and Sedge has only one", line.at);
            self.lost.push((Some(old.from), text.to_owned(), why));
        }
    }

    /// Sets a key that no line stands for.
    pub(super) fn imply(&mut self, key: impl Into<String>, value: String, why: &str) {
        let from = Place { file: "".into(), number: 0 };
        let comments = if why.is_empty() { Vec::new() } else { vec![why.to_owned()] };
        self.settings.insert(key.into(), Setting { value, comments, from });
    }

    pub(super) fn keys_that_end_with(&self, end: &str) -> Vec<String> {
        self.settings.keys().filter(|key| key.ends_with(end)).cloned().collect()
    }

    /// Takes a key back; `why` is said of the line that it came from.
    pub(super) fn drop_setting(&mut self, key: &str, why: &str) {
        let Some(old) = self.settings.remove(key) else { return };
        let text = old.comments.first().and_then(|text| text.split_once(": ")).map_or("", |(_, text)| text).to_owned();
        self.lost.push((Some(old.from), text, why.to_owned()));
    }

    /// Something important that no single line says.
    pub(super) fn warn(&mut self, what: &str, why: impl Into<String>) {
        self.lost.push((None, what.to_owned(), why.into()));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.settings.contains_key(key)
    }

    /// One line for each thing that was not carried over.
    pub(super) fn report(&self) -> Vec<String> {
        let line = |(at, text, why): &(Option<Place>, String, String)| match at {
            Some(at) => format!("{at}: {text}: {why}"),
            None => format!("{text}: {why}"),
        };
        self.lost.iter().map(line).collect()
    }

    /// The whole file.
    pub(super) fn toml(&self, source: &str) -> String {
        let mut out = format!(
            "# Made from {source} by sedge {}. Check it with: sedge config check -c FILE\n",
            env!("CARGO_PKG_VERSION")
        );
        let mut section = "";
        for (key, setting) in &self.settings {
            let (of, name) = key.rsplit_once('.').unwrap_or(("", key));
            if of != section {
                section = of;
                let _ = write!(out, "\n[{of}]\n");
            }
            for comment in &setting.comments {
                let _ = writeln!(out, "# {}", one_line(comment));
            }
            let _ = writeln!(out, "{name} = {}", setting.value);
        }
        if !self.lost.is_empty() {
            out.push_str("\n# Not carried over:\n");
            for line in self.report() {
                let _ = writeln!(out, "# {}", one_line(&line));
            }
        }
        if !self.as_it_is.is_empty() {
            out.push_str("\n# What Sedge does without a setting:\n");
            for (at, text, why) in &self.as_it_is {
                let _ = writeln!(out, "# {}", one_line(&format!("{at}: {text}: {why}")));
            }
        }
        out
    }
}

/// A line as it is repeated to people: without secrets.
fn shown(line: &Line) -> String {
    let secret = ["password", "psk", "auth_opt_", "plugin_opt_"].iter().any(|part| line.name.contains(part))
        && line.name != "password_file"
        && line.name != "psk_file"
        && line.name != "psk_hint";
    match (line.value.is_empty(), secret) {
        (true, _) => line.name.clone(),
        (false, true) => format!("{} ...", line.name),
        (false, false) => format!("{} {}", line.name, line.value),
    }
}

/// Comments cannot hold control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
