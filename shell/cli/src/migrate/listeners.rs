//! Where clients connect, with the options of each listener.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;

use super::draft::{Draft, Fate, quoted};
use super::options::{number, switch};
use super::read::Line;

/// A listener of the file.
#[derive(Debug)]
pub(super) struct Listener {
    /// The line that opens it; `None` for the one that is there without.
    opens: Option<Line>,
    options: Vec<Line>,
}

/// Options that belong to a listener.
pub(super) const OPTIONS: [&str; 35] = [
    "accept_protocol_versions",
    "disable_client_cert_date_checks",
    "enable_proxy_protocol",
    "listener_auto_id_prefix",
    "max_topic_alias_broker",
    "proxy_protocol_v2_require_tls",
    "websockets_origin",
    "bind_address",
    "bind_interface",
    "cafile",
    "capath",
    "certfile",
    "ciphers",
    "ciphers_tls1.3",
    "crlfile",
    "dhparamfile",
    "http_dir",
    "keyfile",
    "max_connections",
    "max_qos",
    "max_topic_alias",
    "mount_point",
    "port",
    "protocol",
    "psk_hint",
    "require_certificate",
    "socket_domain",
    "tls_engine",
    "tls_engine_kpass_sha1",
    "tls_keyform",
    "tls_version",
    "use_identity_as_username",
    "use_subject_as_username",
    "use_username_as_clientid",
    "websockets_headers_size",
];

/// Options by which a listener lets in less, or keeps clients apart, and that Sedge does not have: without them it would be more open.
const NARROWING: [(&str, &str); 6] = [
    (
        "mount_point",
        "its clients see only what is below mount_point, and without it they would see everything: topics have no prefix of their \
         listener in Sedge. Have clients use the whole topic, give them rules (acl.file), and open the listener",
    ),
    ("use_username_as_clientid", "its clients could take each other's sessions: client ids are free in Sedge"),
    ("accept_protocol_versions", "it takes some versions of MQTT only, and Sedge takes 3.1.1 and 5.0 at all listeners"),
    (
        "enable_proxy_protocol",
        "it is for a load balancer: set listener.NAME.proxy_protocol and listener.NAME.proxy_trusted",
    ),
    ("proxy_protocol_v2_require_tls", "Sedge does not ask what the load balancer says of TLS"),
    ("websockets_origin", "it takes pages of some origins only, and Sedge takes those of all"),
];

/// Whether an option belongs to a listener.
pub(super) fn is_option(name: &str) -> bool {
    OPTIONS.contains(&name)
}

impl Listener {
    pub(super) const fn new(opens: Option<Line>) -> Self {
        Self { opens, options: Vec::new() }
    }

    pub(super) fn push(&mut self, line: Line) {
        self.options.push(line);
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|line| line.name == name).map(|line| line.value.as_str())
    }

    /// Whether anything in the file asks for it.
    pub(super) fn is_there(&self) -> bool {
        self.opens.is_some()
            || ["port", "bind_address", "bind_interface"].iter().any(|name| self.option(name).is_some())
    }

    fn port_and_host(&self) -> (&str, &str) {
        match &self.opens {
            Some(line) => line.value.split_once(char::is_whitespace).unwrap_or((&line.value, "")),
            None => (self.option("port").unwrap_or("1883"), self.option("bind_address").unwrap_or_default()),
        }
    }

    /// Whether the option is there and keeps anybody out, or apart.
    fn narrows(&self, name: &str) -> bool {
        match (name, self.option(name)) {
            (_, None) => false,
            ("accept_protocol_versions", Some(versions)) => !versions.contains('4') || !versions.contains('5'),
            (_, Some(value)) => value != "false",
        }
    }

    /// The last line counts. A value that Mosquitto would refuse is taken for the stricter one.
    fn asks_for_certificates(&self) -> bool {
        self.option("require_certificate").is_some_and(|value| value != "false")
    }

    fn is_encrypted(&self) -> bool {
        self.option("certfile").is_some() || self.option("keyfile").is_some()
    }

    fn protocol(&self) -> &'static str {
        match (self.option("protocol") == Some("websockets"), self.is_encrypted()) {
            (false, false) => "tcp",
            (false, true) => "tls",
            (true, false) => "ws",
            (true, true) => "wss",
        }
    }

    /// Why Sedge cannot listen like that. Rather no listener than one that lets more in.
    fn obstacle(&self) -> Option<String> {
        let (port, host) = self.port_and_host();
        let wrong = |what: &str| Some(what.to_owned());
        if port == "0" && host.is_empty() {
            return wrong("a Unix socket without a path");
        }
        // Written in one way only: +1883 and 01883 would be other names for the listener of 1883.
        if !port.parse::<u16>().is_ok_and(|number| number.to_string() == port) {
            return Some(format!("{port:?} is not a port"));
        }
        if self.option("protocol").is_some_and(|protocol| !["mqtt", "websockets"].contains(&protocol)) {
            return wrong("Sedge has no such protocol for clients; its HTTP API has a port of its own, http.port");
        }
        if let Some((_, why)) = NARROWING.iter().find(|(name, _)| self.narrows(name)) {
            return wrong(why);
        }
        if self.option("psk_hint").is_some() {
            return wrong("Sedge has no TLS with pre-shared keys");
        }
        if self.option("crlfile").is_some() {
            return wrong("Sedge reads no list of revoked certificates (crlfile), so that it would let them in");
        }
        let asks = self.asks_for_certificates();
        if asks && (self.option("cafile").is_none() || !self.is_encrypted()) {
            return wrong("require_certificate needs certfile, keyfile and cafile here; Sedge reads no capath");
        }
        if !self.is_encrypted() {
            return None;
        }
        let files = ["certfile", "keyfile"].into_iter().chain(asks.then_some("cafile"));
        files.into_iter().find_map(|name| match self.option(name) {
            None => Some(format!("TLS needs {name}")),
            Some(path) => {
                let why = |error| format!("{name} cannot be read ({error}): run this where it is");
                File::open(path).err().map(why)
            }
        })
    }
}

/// Decides about all listeners, `default` being the one that is there without a `listener` line. Says whether any could be carried over.
pub(super) fn carry(draft: &mut Draft, default: Listener, others: Vec<Listener>) -> bool {
    let explicit = default.is_there() || !others.is_empty();
    let mut chosen = Vec::new();
    let mut spare = Vec::new();
    let mut taken = BTreeSet::new();
    for listener in std::iter::once(default).chain(others) {
        let here = listener.is_there() || !explicit;
        let (port, host) = listener.port_and_host();
        let place = (port.to_owned(), address(listener.option("bind_interface").unwrap_or(host)).0);
        match listener.obstacle() {
            _ if !here => spare.push((listener, "there is no listener that it could belong to".to_owned())),
            Some(why) => spare.push((listener, why)),
            None if taken.insert(place) => chosen.push(listener),
            None => spare.push((listener, "another listener has this address already".to_owned())),
        }
    }
    for (listener, why) in &spare {
        for line in listener.opens.iter().chain(&listener.options) {
            draft.note(line, Fate::lost(why));
        }
    }
    match &chosen[..] {
        [] => {
            draft.imply("mqtt.bind", quoted("127.0.0.1"), "None of the listeners could be carried over.");
            draft.warn("listeners", "none could be carried over: clients of other machines reach nothing");
        }
        [only] if only.protocol() == "tcp" && only.port_and_host().0 != "0" => carry_only(draft, only, explicit),
        several => {
            draft.imply("mqtt.enabled", "false".to_owned(), "The listeners are those below.");
            carry_several(draft, several);
        }
    }
    !chosen.is_empty()
}

/// One plain listener is that of `[mqtt]`.
fn carry_only(draft: &mut Draft, listener: &Listener, explicit: bool) {
    if !explicit {
        let why = "Without a listener Mosquitto serves this machine only.";
        draft.imply("mqtt.bind", quoted("127.0.0.1"), why);
    }
    carry_one(draft, listener, "mqtt", "limits.max_connections");
}

fn carry_several(draft: &mut Draft, listeners: &[Listener]) {
    let mut names = BTreeSet::new();
    for listener in listeners {
        let protocol = listener.protocol();
        let port = listener.port_and_host().0;
        let base = if port == "0" { "socket".to_owned() } else { format!("{protocol}-{port}") };
        let mut name = base.clone();
        while !names.insert(name.clone()) {
            name = format!("{base}-{}", names.len());
        }
        let section = format!("listener.{name}");
        draft.imply(format!("{section}.protocol"), quoted(protocol), "");
        carry_one(draft, listener, &section, &format!("{section}.max_connections"));
    }
}

fn carry_one(draft: &mut Draft, listener: &Listener, section: &str, max_connections: &str) {
    let key = |name: &str| format!("{section}.{name}");
    if let Some(line) = &listener.opens {
        let (port, host) = listener.port_and_host();
        if port == "0" {
            draft.note(line, Fate::set(key("socket"), quoted(host)));
        } else {
            draft.note(line, number(key("port"), port, 1, 65_535));
            if !host.is_empty() {
                draft.note(line, bind(key("bind"), host));
            }
        }
    } else if section != "mqtt" && listener.option("port").is_none() {
        draft.imply(key("port"), "1883".to_owned(), "The port of the listener without a listener line.");
    }
    for line in &listener.options {
        let value = line.value.as_str();
        let fate = match line.name.as_str() {
            "port" if listener.opens.is_none() => number(key("port"), value, 1, 65_535),
            "bind_address" if listener.opens.is_none() => bind(key("bind"), value),
            "port" | "bind_address" => Fate::lost("it counts only for the listener without a listener line"),
            "bind_interface" | "socket_domain" if listener.port_and_host().0 == "0" => {
                Fate::lost("a Unix socket has none")
            }
            "bind_interface" => bind(key("bind"), value),
            "socket_domain" if listener.port_and_host().1.is_empty() && value == "ipv6" => {
                Fate::roughly(key("bind"), quoted("::"), "IPv4 is served there, too.")
            }
            "max_connections" if value == "-1" => Fate::as_it_is("there is no limit of its own"),
            "max_connections" => number(max_connections, value, 1, 1 << 31),
            "certfile" => Fate::set(key("cert_file"), quoted(value)),
            "keyfile" => Fate::set(key("key_file"), quoted(value)),
            "cafile" if listener.asks_for_certificates() => Fate::set(key("ca_file"), quoted(value)),
            "require_certificate" if value != "false" && listener.asks_for_certificates() => {
                Fate::set(key("client_cert"), quoted("required"))
            }
            "use_identity_as_username" if value == "true" && listener.asks_for_certificates() => {
                Fate::set(key("username_from"), quoted("cn"))
            }
            "protocol" if value == "websockets" => Fate::set(key("protocol"), quoted(listener.protocol())),
            name => elsewhere(name, value),
        };
        draft.note(line, fate);
    }
}

/// Options that are not a listener's in Sedge.
fn elsewhere(name: &str, value: &str) -> Fate {
    match name {
        "socket_domain" => Fate::as_it_is("what is served is decided by the address to bind"),
        "max_topic_alias" => number("limits.topic_alias_maximum", value, 0, 65_535),
        "max_qos" if value == "2" => Fate::as_it_is("all levels of QoS are served"),
        "max_qos" => Fate::lost("all levels of QoS are served"),
        "protocol" => Fate::as_it_is("MQTT is what is served"),
        "cafile" | "require_certificate" => Fate::as_it_is("clients are not asked for certificates"),
        "capath" => Fate::lost("put the authorities into one file, and name it with cafile"),
        "use_username_as_clientid" | "use_identity_as_username" | "use_subject_as_username" => {
            switch(value, false, "this name is not taken from there")
        }
        "max_topic_alias_broker" => Fate::as_it_is("topic aliases are used as far as the client takes them"),
        "listener_auto_id_prefix" => Fate::lost("ids that the broker chooses begin with sedge-"),
        "disable_client_cert_date_checks" => switch(value, false, "certificates count while they are valid"),
        "accept_protocol_versions" => Fate::as_it_is("MQTT 3.1.1 and 5.0 are served"),
        "http_dir" => Fate::lost("Sedge serves no files"),
        "websockets_headers_size" => Fate::lost("Sedge knows the limits of WebSocket requests itself"),
        "ciphers" | "ciphers_tls1.3" | "dhparamfile" | "tls_version" => {
            Fate::lost("TLS is that of versions 1.2 and 1.3, with the ciphers that are safe today")
        }
        _ => Fate::lost("Sedge has nothing like it"),
    }
}

/// Never wider than it was: an address that is not understood becomes the loopback one.
fn address(host: &str) -> (String, bool) {
    match host.parse::<IpAddr>() {
        Ok(_) => (host.to_owned(), true),
        Err(_) if host.is_empty() => ("0.0.0.0".to_owned(), true),
        Err(_) => ("127.0.0.1".to_owned(), host == "localhost"),
    }
}

fn bind(key: String, host: &str) -> Fate {
    let (address, known) = address(host);
    if known {
        return Fate::set(key, quoted(&address));
    }
    let remark = format!("Sedge wants an IP address: write the one of {host} here. Until then this machine only.");
    Fate::roughly(key, quoted(&address), remark)
}
