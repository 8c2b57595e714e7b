//! Where clients connect, with the options of each listener.

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

/// Options that encrypt.
const TLS: [&str; 13] = [
    "cafile",
    "capath",
    "certfile",
    "keyfile",
    "ciphers",
    "ciphers_tls1.3",
    "crlfile",
    "dhparamfile",
    "require_certificate",
    "tls_version",
    "tls_engine",
    "tls_engine_kpass_sha1",
    "tls_keyform",
];
/// Options of a listener that needs keys of its own.
const PSK: [&str; 1] = ["psk_hint"];

/// Options that belong to a listener.
pub(super) const OPTIONS: [&str; 14] = [
    "bind_address",
    "bind_interface",
    "http_dir",
    "max_connections",
    "max_qos",
    "max_topic_alias",
    "mount_point",
    "port",
    "protocol",
    "socket_domain",
    "use_username_as_clientid",
    "use_identity_as_username",
    "use_subject_as_username",
    "websockets_headers_size",
];

/// Whether an option belongs to a listener.
pub(super) fn is_option(name: &str) -> bool {
    OPTIONS.contains(&name) || TLS.contains(&name) || PSK.contains(&name)
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
    fn is_there(&self) -> bool {
        self.opens.is_some()
            || ["port", "bind_address", "bind_interface"].iter().any(|name| self.option(name).is_some())
    }

    fn port_and_host(&self) -> (&str, &str) {
        match &self.opens {
            Some(line) => line.value.split_once(char::is_whitespace).unwrap_or((&line.value, "")),
            None => (self.option("port").unwrap_or("1883"), self.option("bind_address").unwrap_or_default()),
        }
    }

    /// Why Sedge cannot listen like that.
    fn obstacle(&self) -> Option<&'static str> {
        if self.port_and_host().0 == "0" {
            return Some(
                "a Unix socket is not carried over: write [listener.NAME] with protocol = \"tcp\" and socket by hand",
            );
        }
        if self.option("protocol").is_some_and(|protocol| protocol != "mqtt") {
            return Some(
                "WebSocket is not carried over: write [listener.ws] by hand, or [listener.wss] with cert_file and key_file",
            );
        }
        if self.options.iter().any(|line| TLS.contains(&line.name.as_str())) {
            return Some("TLS is not carried over: write [listener.tls] with cert_file and key_file by hand");
        }
        self.options
            .iter()
            .any(|line| PSK.contains(&line.name.as_str()))
            .then_some("Sedge has no TLS with pre-shared keys")
    }
}

/// Decides about all listeners, `default` being the one that is there without a `listener` line.
pub(super) fn carry(draft: &mut Draft, default: Listener, others: Vec<Listener>) {
    let explicit = default.is_there() || !others.is_empty();
    let mut chosen = None;
    let mut spare = Vec::new();
    for listener in std::iter::once(default).chain(others) {
        let here = listener.is_there() || !explicit;
        match listener.obstacle() {
            _ if !here => spare.push((listener, "there is no listener that it could belong to")),
            Some(why) => spare.push((listener, why)),
            None if chosen.is_none() => chosen = Some(listener),
            None => spare.push((
                listener,
                "only one listener is carried over: write [listener.NAME] with protocol = \"tcp\" by hand",
            )),
        }
    }
    for (listener, why) in &spare {
        for line in listener.opens.iter().chain(&listener.options) {
            draft.note(line, Fate::lost(*why));
        }
    }
    if let Some(listener) = chosen {
        carry_one(draft, &listener, explicit);
    } else {
        draft.imply("mqtt.bind", quoted("127.0.0.1"), "None of the listeners could be carried over.");
        draft.warn("listeners", "none could be carried over: clients of other machines reach nothing");
    }
}

fn carry_one(draft: &mut Draft, listener: &Listener, explicit: bool) {
    if !explicit {
        let why = "Without a listener Mosquitto serves this machine only.";
        draft.imply("mqtt.bind", quoted("127.0.0.1"), why);
    }
    if let Some(line) = &listener.opens {
        let (port, host) = listener.port_and_host();
        draft.note(line, number("mqtt.port", port, 1, 65_535));
        if !host.is_empty() {
            draft.note(line, bind(host));
        }
    }
    for line in &listener.options {
        draft.note(line, fate(listener, &line.name, &line.value));
    }
}

/// Never wider than it was: an address that is not understood becomes the loopback one.
fn bind(host: &str) -> Fate {
    if host.parse::<IpAddr>().is_ok() {
        return Fate::set("mqtt.bind", quoted(host));
    }
    if host == "localhost" {
        return Fate::set("mqtt.bind", quoted("127.0.0.1"));
    }
    let remark = format!("Sedge wants an IP address: write the one of {host} here. Until then this machine only.");
    Fate::roughly("mqtt.bind", quoted("127.0.0.1"), remark)
}

fn fate(listener: &Listener, name: &str, value: &str) -> Fate {
    match name {
        "port" if listener.opens.is_none() => number("mqtt.port", value, 1, 65_535),
        "bind_address" if listener.opens.is_none() => bind(value),
        "port" | "bind_address" => Fate::lost("it counts only for the listener without a listener line"),
        "bind_interface" => bind(value),
        "socket_domain" if listener.port_and_host().1.is_empty() && value == "ipv6" => {
            Fate::roughly("mqtt.bind", quoted("::"), "IPv4 is served there, too.")
        }
        "socket_domain" => Fate::as_it_is("what is served is decided by mqtt.bind"),
        "max_connections" if value == "-1" => Fate::as_it_is("the default, 1000000, is more than a process can have"),
        "max_connections" => number("limits.max_connections", value, 1, 1 << 31),
        "max_topic_alias" => number("limits.topic_alias_maximum", value, 0, 65_535),
        "max_qos" if value == "2" => Fate::as_it_is("all levels of QoS are served"),
        "max_qos" => Fate::lost("all levels of QoS are served"),
        "protocol" => Fate::as_it_is("MQTT is what is served"),
        "use_username_as_clientid" | "use_identity_as_username" | "use_subject_as_username" => {
            switch(value, false, "client ids and user names are not derived from each other")
        }
        "mount_point" => Fate::lost("topics have no prefix of their listener; let clients use the whole topic"),
        "http_dir" | "websockets_headers_size" => {
            Fate::lost("Sedge serves no files, and knows the limits of WebSocket requests itself")
        }
        _ => Fate::lost("Sedge has nothing like it"),
    }
}
