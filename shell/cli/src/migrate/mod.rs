//! A `mosquitto.conf` as a `sedge.toml`, with every line accounted for. Nothing here is of the rest of the program, so that the fuzz
//! target can include it.

mod access;
mod bridges;
mod draft;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod listeners;
mod options;
mod read;

use self::access::Access;
use self::draft::{Draft, Fate};
use self::listeners::Listener;
use self::options::Sizes;
use self::read::Line;

/// Result of a migration.
#[derive(Debug)]
pub(crate) struct Migrated {
    /// The new file.
    pub(crate) toml: String,
    /// One line for each thing that was not carried over.
    pub(crate) report: Vec<String>,
}

/// Reads a file of Mosquitto, and those that it includes.
pub(crate) fn migrate(path: &std::path::Path) -> std::io::Result<Migrated> {
    let draft = carry(read::read(path)?);
    Ok(Migrated { toml: draft.toml(&path.display().to_string()), report: draft.report() })
}

/// Section that the next options belong to.
enum Section {
    Default,
    Listener,
    Bridge,
}

fn carry(lines: Vec<Line>) -> Draft {
    let mut draft = Draft::default();
    let mut default = Listener::new(None);
    let mut others: Vec<Listener> = Vec::new();
    let mut connections: Vec<Vec<Line>> = Vec::new();
    let mut section = Section::Default;
    let mut log_types: Option<Line> = None;
    let mut access = Access::default();
    let is_kept = lines.iter().rfind(|line| line.name == "persistence").is_some_and(|line| line.value == "true");
    let sizes = Sizes::new(&lines);
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
                connections.push(vec![line]);
            }
            name if options::is_bridge_option(name) => match (&section, connections.last_mut()) {
                (Section::Bridge, Some(connection)) => connection.push(line),
                _ => draft.note(&line, Fate::lost("it belongs behind a connection line")),
            },
            "max_packet_size" | "message_size_limit" => draft.note(&line, sizes.fate(&line)),
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
    for connection in &connections {
        bridges::carry(&mut draft, connection);
    }
    sizes.imply(&mut draft);
    let has_default = default.is_there();
    let is_any_open = listeners::carry(&mut draft, default, others);
    access.carry(&mut draft, has_default, is_any_open);
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

    /// The settings without comments, and without the size of packets where nothing limits it.
    fn settings(draft: &Draft) -> Vec<String> {
        let toml = draft.toml("x");
        let is_setting =
            |line: &&str| !line.is_empty() && !line.starts_with('#') && *line != "maximum_packet_size = 268435460";
        let mut lines: Vec<String> = toml.lines().filter(is_setting).map(str::to_owned).collect();
        let empty = lines.windows(2).position(|pair| pair[0] == "[limits]" && pair[1].starts_with('['));
        empty.map(|at| lines.remove(at));
        lines.pop_if(|last| *last == "[limits]");
        lines
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
                      port = 1883|protocol = \"tcp\"|[listener.tcp-1885]|port = 1885|protocol = \"tcp\"|[mqtt]|enabled = false";
        assert_eq!(settings(&draft).join("|"), wanted);
        let report = draft.report();
        let all = report.join("\n");
        for (line, words) in [
            (3, "cannot be read"),
            (4, "cannot be read"),
            (5, "cannot be read"),
            (8, "prefix"),
            (11, "no topic"),
            (13, "follows a bridge"),
            (14, "no such option"),
            (15, "not carried over"),
            (16, "follows a bridge"),
        ] {
            let found = report.iter().any(|text| text.contains(&format!("m:{line}: ")) && text.contains(words));
            assert!(found, "{line}: {words}\n{all}");
        }
        assert!(!all.contains("geheim"), "{all}");
    }

    /// A bridge that Sedge would refuse is not written: the rest of the file can be used.
    #[test]
    fn a_bridge_that_sedge_refuses_is_left_out_with_the_reason() {
        let text = "connection bad\naddress a\ntopic t#\nconnection good\naddress b\ntopic t/#\nconnection good\naddress c\ntopic x\n";
        let draft = carried(text);
        let report = draft.report().join("\n");
        assert!(
            report.contains(
                "m:1: connection bad: it would be a bridge that Sedge refuses: from: \"t#\" is no topic filter"
            ),
            "{report}"
        );
        let toml = draft.toml("m");
        assert!(sedge_daemon::Config::from_toml(&toml).is_ok(), "{toml}");
        assert!(
            toml.contains("[bridge.good]") && toml.contains("[bridge.goodx]") && !toml.contains("[bridge.bad]"),
            "{toml}"
        );
    }

    /// MQ-18
    #[test]
    fn connections_become_bridges() {
        let text = "listener 1884\nconnection Cloud.1\naddress a:1883 b\ntopic plant/# out 1 here/ there/\ntopic x out 1 here/ there/\n\
                    topic cmd/# in 2\ntopic y both 0 loc/\nremote_username u\nremote_password p\nremote_clientid id\n\
                    bridge_insecure true\nkeepalive_interval 60\n";
        let draft = carried(text);
        let all = settings(&draft).join("|");
        for wanted in [
            "[bridge.cloud-1]|address = [\"a:1883\", \"b\"]|client_id = \"id\"|direction = \"in\"|from = [\"cmd/#\"]|keep_alive = 60|\
             kind = \"mqtt\"|qos = 2|username = \"u\"|version = \"3.1.1\"",
            "[bridge.cloud-1-2]|address = [\"a:1883\", \"b\"]|client_id = \"id-2\"|direction = \"out\"|\
             from = [\"here/plant/#\", \"here/x\"]",
            "strip = \"here/\"|topic = \"there/\"",
        ] {
            assert!(all.contains(wanted), "{wanted}\n{all}");
        }
        let report = draft.report().join("\n");
        assert!(
            report.contains("m:7: topic y both 0 loc/: both ways") && report.contains("m:11: bridge_insecure"),
            "{report}"
        );
        assert!(!report.contains("m:8"), "{report}");
        let config = sedge_daemon::Config::from_toml(&draft.toml("x"));
        assert!(config.is_ok(), "{config:?}");
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
        for more in [
            "require_certificate true\ncapath x",
            "require_certificate true\nrequire_certificate tru",
            "cafile none\nrequire_certificate true",
            "crlfile x",
            "psk_hint x",
        ] {
            let draft = carried(&format!("{tls}{more}\n"));
            let closed = ["[auth]", "anonymous = \"never\"", "[mqtt]", "bind = \"127.0.0.1\""];
            assert_eq!(settings(&draft), closed, "{more}");
        }
        assert!(settings(&carried(&tls)).contains(&"[listener.tls-8883]".to_owned()));
        for port in ["+1884", "01884", "65536", "x"] {
            let draft = carried(&format!("listener {port}\nlistener 1884\n"));
            assert!(draft.report().join("").contains("is not a port"), "{:?}", draft.report());
            assert!(sedge_daemon::Config::from_toml(&draft.toml("m")).is_ok(), "{}", draft.toml("m"));
        }
        // The last line counts, as in Mosquitto.
        let taken_back = settings(&carried("listener 1884\nrequire_certificate true\nrequire_certificate false\n"));
        assert!(!taken_back.iter().any(|line| line.contains("client_cert")), "{taken_back:?}");
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

    /// Plugins may refuse clients that Sedge would let in, whatever else the file says.
    #[test]
    fn rules_that_only_a_plugin_knows_close_everything() {
        let dir = tempfile::tempdir().unwrap();
        let passwords = dir.path().join("passwords");
        std::fs::write(&passwords, "").unwrap();
        let passwords = format!("password_file {}\n", passwords.display());
        for plugin in [
            "plugin /usr/lib/mosquitto_dynamic_security.so\nplugin_opt_config_file /x.json\n",
            "auth_plugin /usr/lib/go-auth.so\n",
            "global_plugin /x.so\n",
            "plugin_load acl /x.so\nlistener 1885\nplugin_use acl\n",
            "clientid_prefixes secure-\n",
        ] {
            let draft = carried(&format!("listener 1884\nallow_anonymous true # everybody\n{passwords}{plugin}"));
            let all = settings(&draft).join("|");
            assert!(
                all.starts_with("[auth]|anonymous = \"never\"|[") && !all.contains("password_file"),
                "{plugin}{all}"
            );
            let report = draft.report().join("\n");
            assert!(report.contains("m:2: allow_anonymous true") && report.contains("m:4: "), "{report}");
            assert!(report.contains("m:3: password_file") && report.contains("nobody is let in"), "{report}");
        }
        let store = "listener 1884\nallow_anonymous true\nplugin /usr/lib/mosquitto_persist_sqlite.so\n";
        assert!(settings(&carried(store)).contains(&"anonymous = \"always\"".to_owned()));
    }

    /// An option that narrows a listener in Mosquitto 2.0 or 2.1 and cannot be had closes the listener.
    #[test]
    fn a_listener_that_was_narrower_is_closed() {
        for option in [
            "mount_point site/",
            "use_username_as_clientid 1 # so",
            "accept_protocol_versions 5",
            "enable_proxy_protocol 2",
            "websockets_origin https://a.example",
            "protocol http_api",
        ] {
            let draft = carried(&format!("allow_anonymous true\nlistener 1884\n{option}\nlistener 1885\n"));
            let all = settings(&draft).join("|");
            assert_eq!(all, "[auth]|anonymous = \"always\"|[mqtt]|port = 1885", "{option}");
            assert!(draft.report().iter().any(|line| line.contains("m:2: listener 1884: ")), "{:?}", draft.report());
        }
        // The node listens for this machine only then, and lets nobody in.
        let draft = carried("allow_anonymous true\nlistener 1884\nmount_point site/\n");
        assert_eq!(settings(&draft), ["[auth]", "anonymous = \"never\"", "[mqtt]", "bind = \"127.0.0.1\""]);
        let draft = carried("listener 1884\naccept_protocol_versions 3, 4, 5\nuse_username_as_clientid false\n");
        assert!(settings(&draft).contains(&"port = 1884".to_owned()) && draft.report().is_empty());
        let draft = carried("allow_anonymous true\nlistener 1884\nlistener_allow_anonymous false\n");
        assert!(settings(&draft).contains(&"anonymous = \"never\"".to_owned()));
    }

    #[test]
    fn a_remark_behind_a_setting_changes_nothing() {
        let text = "listener 1884 # everywhere\nallow_anonymous true # for now\nmax_connections 10 # few\nsys_interval 5 # s\n";
        let draft = carried(text);
        assert!(draft.report().is_empty(), "{:?}", draft.report());
        let wanted =
            "[auth]|anonymous = \"always\"|[limits]|max_connections = 10|[mqtt]|port = 1884|[sys]|interval = 5";
        assert_eq!(settings(&draft).join("|"), wanted);
    }

    /// Packets that Mosquitto takes are taken.
    #[test]
    fn packets_are_as_large_as_before() {
        for (text, size) in [
            ("", 268_435_460),
            ("message_size_limit 0\n", 268_435_460),
            ("max_packet_size 20 # small\n", 128),
            ("max_packet_size 100000\n", 100_000),
            ("message_size_limit 1000\n", 70_632),
            ("max_packet_size 50000\nmessage_size_limit 1000\n", 50_000),
            ("message_size_limit 1000\nmax_packet_size 500000\n", 70_632),
            ("max_packet_size 100000\nmax_packet_size 0\n", 268_435_460),
        ] {
            let draft = carried(text);
            let toml = draft.toml("x");
            assert!(toml.contains(&format!("\nmaximum_packet_size = {size}\n")), "{text}{toml}");
            assert!(draft.report().is_empty(), "{:?}", draft.report());
        }
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
