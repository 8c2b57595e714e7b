//! Accounts and rights: the files of Mosquitto are read as they are, if Sedge understands them; nobody is let in otherwise.

use std::collections::BTreeSet;
use std::path::Path;

use sedge_daemon::Config;

use super::draft::{Draft, Fate, quoted};
use super::read::Line;

/// Options that are about accounts and rights.
pub(super) const OPTIONS: [&str; 10] = [
    "acl_file",
    "allow_anonymous",
    "auth_plugin",
    "clientid_prefixes",
    "global_plugin",
    "listener_allow_anonymous",
    "password_file",
    "plugin",
    "plugin_load",
    "plugin_use",
];

/// Difference between Sedge and Mosquitto with the same rules.
const RULES: &str = "A subscription of which nothing may be read is refused; Mosquitto grants it and delivers nothing.";

/// The lines of a file that are about accounts and rights.
#[derive(Debug, Default)]
pub(super) struct Access {
    lines: Vec<Line>,
    /// Whether each listener has its own (`per_listener_settings`).
    per_listener: bool,
    /// How many listeners were opened so far.
    listeners: usize,
    /// Of which listeners something says whether anybody may come, by their place; 0 is the one that is there without a line.
    decided: BTreeSet<usize>,
}

impl Access {
    /// Takes a line if it belongs here; gives it back otherwise.
    pub(super) fn take(&mut self, line: Line) -> Option<Line> {
        if line.name == "per_listener_settings" {
            self.per_listener = line.value == "true";
        }
        self.listeners += usize::from(line.name == "listener");
        if !OPTIONS.contains(&line.name.as_str()) {
            return Some(line);
        }
        if line.name == "allow_anonymous" {
            self.decided.insert(self.listeners);
        }
        self.lines.push(line);
        None
    }

    /// Decides about all of them. `has_default`: there is a listener without a line that opens it; `is_any_open`: some listener is carried
    /// over. Without any listener Mosquitto serves
    /// this machine only and takes anybody.
    pub(super) fn carry(self, draft: &mut Draft, has_default: bool, is_any_open: bool) {
        let is_local = !has_default && self.listeners == 0;
        let of = |name: &'static str| self.lines.iter().filter(move |line| line.name == name);
        let anonymous: Vec<&Line> = of("allow_anonymous").collect();
        // Where listeners differ, the stricter counts for all.
        let is_open = match (&anonymous[..], self.per_listener) {
            ([], _) => is_local,
            // Where nothing is said of a listener, nobody may come without a password.
            (lines, true) => {
                let first = usize::from(!has_default && self.listeners > 0);
                let all_decided = (first..=self.listeners).all(|place| self.decided.contains(&place));
                all_decided && lines.iter().all(|line| line.value == "true")
            }
            ([.., last], false) => last.value == "true",
        };
        let has_accounts = of("password_file").next().is_some();
        let passwords = file(draft, of("password_file"), "auth.password_file", "", self.per_listener);
        let rules = file(draft, of("acl_file"), "acl.file", RULES, self.per_listener);
        let lost = self.note_what_sedge_has_not(draft);
        let closed =
            lost.or_else(|| rules.err().map(|()| RULES_MISSING)).or_else(|| (!is_any_open).then_some(NO_LISTENER));
        let narrower: Vec<&Line> = of("listener_allow_anonymous").collect();
        let is_open = is_open && closed.is_none() && narrower.iter().all(|line| line.value == "true");
        for line in narrower {
            let fate = match (line.value.as_str(), is_open) {
                ("true", true) => Fate::as_it_is("it is so for all listeners"),
                ("false", _) => Fate::set("auth.anonymous", quoted("never")),
                _ => Fate::lost("it would count for all listeners here"),
            };
            draft.note(line, fate);
        }
        for line in &anonymous {
            let word = if is_open { "always" } else { "never" };
            draft.note(line, anonymous_fate(&line.value, word));
        }
        if let Some(why) = closed {
            let mut keys = draft.keys_that_end_with(".username_from");
            keys.push("auth.password_file".to_owned());
            for key in &keys {
                draft.drop_setting(key, why);
            }
        }
        if !is_open && !draft.has("auth.anonymous") {
            draft.imply(
                "auth.anonymous",
                quoted("never"),
                "Mosquitto refuses clients without a password, or nobody may be let in here.",
            );
        } else if is_open && has_accounts && anonymous.is_empty() {
            draft.imply(
                "auth.anonymous",
                quoted("loopback"),
                "Without a listener Mosquitto takes anybody of this machine.",
            );
        }
        if rules == Ok(true) && !has_accounts {
            let why = "without accounts Mosquitto believes any user name, Sedge none: give acl.file's users passwords";
            draft.warn("acl_file", why);
        }
        if passwords.is_err() && is_open {
            draft.warn(
                "password_file",
                "clients with a user name are let in without a password until auth.password_file is set",
            );
        }
    }
}

/// Why nobody is let in when the rules cannot be used.
const RULES_MISSING: &str = "nobody is let in before the rules of acl_file are carried over";

/// The same when no listener can be had.
const NO_LISTENER: &str = "nobody is let in before there is a listener as it was";

/// Part of the file name of a plugin that only keeps data.
const STORES: &str = "mosquitto_persist_";

impl Access {
    /// Notes the lines by which Mosquitto may refuse somebody and Sedge could not; says why nobody is let in if there are any.
    fn note_what_sedge_has_not(&self, draft: &mut Draft) -> Option<&'static str> {
        let mut closed = None;
        for line in &self.lines {
            let is_plugin = line.name.contains("plugin");
            if is_plugin && line.value.contains(STORES) {
                draft.note(line, Fate::lost("there are no plugins; with node.data_dir everything is kept"));
            } else if is_plugin {
                draft.note(
                    line,
                    Fate::lost(
                        "there are no plugins, and nobody is let in before what this one decides is carried over: accounts to \
                         auth.password_file or auth.jwt, rules to acl.file",
                    ),
                );
                closed = Some("nobody is let in before what the plugin decides is carried over");
            } else if line.name == "clientid_prefixes" {
                draft.note(
                    line,
                    Fate::lost(
                        "client ids are not checked, and nobody is let in before you have decided that this does not matter: remove the \
                         line, and run this again",
                    ),
                );
                closed = Some("nobody is let in, since clientid_prefixes cannot be carried over");
            }
        }
        closed
    }
}

fn anonymous_fate(value: &str, word: &str) -> Fate {
    match value {
        "true" if word == "never" => {
            Fate::lost("something else in the file forbids it, and what is set counts for all listeners")
        }
        "true" | "false" => Fate::set("auth.anonymous", quoted(word)),
        _ => Fate::lost(format!("{value:?} is neither true nor false")),
    }
}

/// Sets the key to the file. Says whether there is one; an error if there is one that cannot be used.
fn file<'a>(
    draft: &mut Draft,
    lines: impl Iterator<Item = &'a Line>,
    key: &'static str,
    remark: &str,
    per_listener: bool,
) -> Result<bool, ()> {
    let lines: Vec<&Line> = lines.collect();
    let Some(last) = lines.last() else { return Ok(false) };
    if per_listener && lines.iter().any(|line| line.value != last.value) {
        for line in &lines {
            draft
                .note(line, Fate::lost("listeners have different ones; accounts and rights are the same for all here"));
        }
        return Err(());
    }
    let problem = problem(key, &last.value);
    for line in &lines {
        draft.note(
            line,
            match &problem {
                Some(what) => Fate::lost(format!("{what}; set {key} when that is put right")),
                None if remark.is_empty() => Fate::set(key, quoted(&line.value)),
                None => Fate::roughly(key, quoted(&line.value), remark),
            },
        );
    }
    if problem.is_some() { Err(()) } else { Ok(true) }
}

/// The objection of a node that starts with this file; none if the file is fine.
fn problem(key: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("no file is named".to_owned());
    }
    let mut config = Config::default();
    let path = Some(Path::new(path).to_owned());
    if key == "acl.file" {
        config.acl.file = path;
    } else {
        config.auth.password_file = path;
    }
    let error = config.check().err()?.to_string();
    let line = error.lines().next().unwrap_or_default();
    Some(line.strip_prefix("configuration: ").unwrap_or(line).to_owned())
}
