//! `sedge config from-mosquitto`: a `mosquitto.conf` as a `sedge.toml`, with every line accounted for.

mod access;
mod draft;
mod listeners;
mod options;
mod read;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use self::access::Access;
use self::draft::{Draft, Fate};
use self::listeners::Listener;
use self::read::Line;
use crate::failure::Failure;
use crate::out;

const EXAMPLES: &str = "\
Examples:
  sedge config from-mosquitto /etc/mosquitto/mosquitto.conf
  sedge config from-mosquitto mosquitto.conf -o sedge.toml && sedge config check -c sedge.toml

What could not be carried over is named on standard error, line by line, and in comments of the new file.";

/// Flags of `sedge config from-mosquitto`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FromMosquittoArgs {
    /// Configuration file of Mosquitto 2.0; files that it includes are read, too
    file: PathBuf,
    /// File to write, which must not exist; standard output without it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the new configuration and what was not carried over as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Runs `sedge config from-mosquitto`.
pub(crate) fn run(args: &FromMosquittoArgs) -> Result<(), Failure> {
    let lines = read::read(&args.file).map_err(|error| Failure::usage(format!("cannot read {error}")))?;
    let draft = carry(lines);
    let toml = draft.toml(&args.file.display().to_string());
    let report = draft.report();
    if args.json {
        return out::json(&json!({ "toml": toml, "not_carried_over": report }));
    }
    match &args.output {
        Some(path) => write(path, &toml)?,
        None => out::raw(toml.as_bytes())?,
    }
    if !report.is_empty() {
        out::note("Not carried over:");
        for line in &report {
            out::note(&format!("  {line}"));
        }
    }
    Ok(())
}

fn write(path: &Path, toml: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(toml.as_bytes()));
    written.map_err(|error| Failure::failed(format!("-o {}: {error}", path.display())))
}

/// What options that follow belong to.
enum Section {
    Default,
    Listener,
    Bridge,
}

fn carry(lines: Vec<Line>) -> Draft {
    let mut draft = Draft::default();
    let mut default = Listener::new(None);
    let mut others: Vec<Listener> = Vec::new();
    let mut section = Section::Default;
    let mut log_types: Option<Line> = None;
    let mut access = Access::default();
    let is_kept = lines.iter().rfind(|line| line.name == "persistence").is_some_and(|line| line.value == "true");
    let has_location = lines.iter().any(|line| line.name == "persistence_location" && !line.value.is_empty());
    for line in lines {
        let Some(line) = access.take(line) else { continue };
        match line.name.as_str() {
            "listener" => {
                section = Section::Listener;
                others.push(Listener::new(Some(line)));
            }
            "connection" => {
                section = Section::Bridge;
                draft.note(&line, options::fate(&line.name, &line.value));
            }
            // Several of them add up.
            "log_type" => match &mut log_types {
                Some(first) => {
                    first.value = format!("{} {}", first.value, line.value);
                    first.at = line.at;
                }
                None => log_types = Some(line),
            },
            name if listeners::is_option(name) => match (&section, others.last_mut()) {
                (Section::Listener, Some(listener)) => listener.push(line),
                (Section::Bridge, _) => draft.note(&line, Fate::lost("it follows a bridge, which has no such option")),
                _ => default.push(line),
            },
            "persistence_location" if !is_kept => {
                draft.note(&line, Fate::as_it_is("nothing is kept there: persistence is off"));
            }
            "persistence" if is_kept && !has_location => {
                let why =
                    "Mosquitto keeps its database where it was started; set node.data_dir to a directory for Sedge";
                draft.note(&line, Fate::lost(why));
            }
            name => {
                let fate = options::fate(name, &line.value);
                draft.note(&line, fate);
            }
        }
    }
    if let Some(line) = log_types.filter(|_| !draft.has("log.level")) {
        let fate = options::fate(&line.name, &line.value);
        draft.note(&line, fate);
    }
    let has_default = default.is_there();
    listeners::carry(&mut draft, default, others);
    access.carry(&mut draft, has_default);
    draft
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(text: &str) -> Draft {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        std::fs::write(&path, text).unwrap();
        carry(read::read(&path).unwrap())
    }

    /// The settings without comments.
    fn settings(draft: &Draft) -> Vec<String> {
        let toml = draft.toml("x");
        toml.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn a_small_file() {
        let draft = carried("listener 1884 10.0.0.1\nallow_anonymous true\nmax_connections 100\nsys_interval 5\n");
        assert!(draft.lost.is_empty(), "{:?}", draft.lost);
        let wanted = "[auth]|anonymous = \"always\"|[limits]|max_connections = 100|[mqtt]|bind = \"10.0.0.1\"|port = 1884|[sys]|interval = 5";
        assert_eq!(settings(&draft).join("|"), wanted);
    }

    #[test]
    fn without_a_listener_only_this_machine_is_served() {
        assert_eq!(settings(&carried("")), ["[mqtt]", "bind = \"127.0.0.1\""]);
        let never = ["[auth]", "anonymous = \"never\"", "[mqtt]"];
        assert_eq!(settings(&carried("bind_address localhost\n")), [&never[..], &["bind = \"127.0.0.1\""]].concat());
        assert_eq!(settings(&carried("port 1999\n")), [&never[..], &["port = 1999"]].concat());
        assert_eq!(
            settings(&carried("listener 1999 host.example\n")),
            [&never[..], &["bind = \"127.0.0.1\"", "port = 1999"]].concat()
        );
    }

    #[test]
    fn options_belong_to_their_listener_and_none_is_dropped_in_silence() {
        let text = "port 1883\nmax_connections 7\nlistener 8883\ncertfile a\nkeyfile b\nlistener 9001\n\
                    protocol websockets\nmount_point x/\nlistener 0 /tmp/socket\nlistener 1885\nconnection b\n\
                    address h\nmax_connections 5\nnonsense\nremote_password geheim\nmount_point y\n";
        let draft = carried(text);
        let wanted = "[auth]|anonymous = \"never\"|[listener.socket]|protocol = \"tcp\"|socket = \"/tmp/socket\"|[listener.tcp-1883]|max_connections = 7|\
                      port = 1883|protocol = \"tcp\"|[listener.tcp-1885]|port = 1885|protocol = \"tcp\"|\
                      [listener.ws-9001]|port = 9001|protocol = \"ws\"|[mqtt]|enabled = false";
        assert_eq!(settings(&draft).join("|"), wanted);
        let report = draft.report();
        let all = report.join("\n");
        for (line, words) in [
            (3, "cannot be read"),
            (4, "cannot be read"),
            (5, "cannot be read"),
            (8, "prefix"),
            (11, "bridges"),
            (13, "follows a bridge"),
            (14, "no such option"),
            (15, "bridges"),
            (16, "follows a bridge"),
        ] {
            let found = report.iter().any(|text| text.contains(&format!("m:{line}: ")) && text.contains(words));
            assert!(found, "{line}: {words}\n{all}");
        }
        assert!(!all.contains("geheim"), "{all}");
    }

    #[test]
    fn a_listener_that_would_let_more_in_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pem");
        std::fs::write(&file, "x").unwrap();
        let tls = format!("listener 8883\ncertfile {0}\nkeyfile {0}\n", file.display());
        let whole =
            format!("{tls}cafile {}\nrequire_certificate true\nuse_identity_as_username true\n", file.display());
        let draft = carried(&whole);
        assert!(draft.report().is_empty(), "{:?}", draft.report());
        let all = settings(&draft).join("|");
        for setting in ["[listener.tls-8883]", "client_cert = \"required\"", "username_from = \"cn\"", "ca_file = "] {
            assert!(all.contains(setting), "{setting}: {all}");
        }
        for more in
            ["require_certificate true\ncapath x", "cafile none\nrequire_certificate true", "crlfile x", "psk_hint x"]
        {
            let draft = carried(&format!("{tls}{more}\n"));
            let closed = ["[auth]", "anonymous = \"never\"", "[mqtt]", "bind = \"127.0.0.1\""];
            assert_eq!(settings(&draft), closed, "{more}");
        }
        assert!(settings(&carried(&tls)).contains(&"[listener.tls-8883]".to_owned()));
    }

    #[test]
    fn files_of_accounts_and_rules_are_used_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).display().to_string()
        };
        let passwords = write("passwords", "");
        let rules = write("rules", "user a\ntopic read b/#\npattern write c/%c\n");
        let wrong = write("wrong", "user a\ntopic read b/#/c\n");
        let text = format!("listener 1884\npassword_file {passwords}\nacl_file {rules}\n");
        let draft = carried(&text);
        assert!(draft.report().is_empty(), "{:?}", draft.report());
        let all = settings(&draft).join("|");
        for setting in ["[acl]|file = ", "password_file = ", "anonymous = \"never\""] {
            assert!(all.contains(setting), "{setting}: {all}");
        }

        // Rules that cannot be read would leave everything open.
        for rules in [&wrong, "/nowhere/rules"] {
            let text = format!("listener 1884\nallow_anonymous true\npassword_file {passwords}\nacl_file {rules}\n");
            let draft = carried(&text);
            let all = settings(&draft).join("|");
            assert_eq!(all, "[auth]|anonymous = \"never\"|[mqtt]|port = 1884");
            let report = draft.report().join("\n");
            assert!(report.contains("acl.file") && report.contains("m:4: acl_file"), "{report}");
            assert!(report.contains("m:3: password_file"), "{report}");
        }

        // Where listeners differ, the stricter counts.
        let text = format!(
            "per_listener_settings true\nlistener 1884\nallow_anonymous true\nlistener 1885\nallow_anonymous false\npassword_file {passwords}\n"
        );
        let draft = carried(&text);
        assert!(
            settings(&draft).join("|").contains("[auth]|anonymous = \"never\"|password_file"),
            "{:?}",
            settings(&draft)
        );
        assert!(draft.report().iter().any(|line| line.contains("m:3: allow_anonymous")), "{:?}", draft.report());
    }

    #[test]
    fn persistence_is_a_directory() {
        let on = carried("persistence true\npersistence_location /var/lib/m\nautosave_interval 60\n");
        assert!(settings(&on).contains(&"data_dir = \"/var/lib/m\"".to_owned()));
        assert!(on.report().is_empty(), "{:?}", on.report());
        let off = carried("persistence_location /var/lib/m\n");
        assert!(!settings(&off).iter().any(|line| line.contains("data_dir")));
        assert!(carried("persistence true\n").report()[0].contains("set node.data_dir"));
    }

    #[test]
    fn of_two_lines_for_one_key_the_first_is_named() {
        let draft = carried("max_queued_messages 1\nmax_queued_messages 2\nlog_type error\nlog_type debug\n");
        assert_eq!(draft.report().len(), 1);
        assert!(draft.report()[0].contains("m:1: max_queued_messages 1: "), "{:?}", draft.report());
        assert!(settings(&draft).contains(&"level = \"debug\"".to_owned()));
    }

    #[test]
    fn a_listener_of_which_nothing_is_said_is_strict() {
        for (text, open) in [
            ("per_listener_settings true\nlistener 1884\nallow_anonymous true\nlistener 1885\n", false),
            ("per_listener_settings true\nport 1883\nlistener 1884\nallow_anonymous true\n", false),
            ("per_listener_settings true\nlistener 1884\nallow_anonymous true\n", true),
            (
                "per_listener_settings true\nlistener 1884\nallow_anonymous true\nlistener 1885\nallow_anonymous true\n",
                true,
            ),
        ] {
            let all = settings(&carried(text)).join("|");
            let word = if open { "anonymous = \"always\"" } else { "anonymous = \"never\"" };
            assert!(all.contains(word), "{text}: {all}");
        }
    }
}
