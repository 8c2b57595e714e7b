//! `-L`: broker, account and topic in one; `-h`: only where the broker is.

/// Path of a WebSocket whose URL has none.
const WEBSOCKET_PATH: &str = "/mqtt";

/// A URL as `mosquitto_pub -L` takes it, or one of a WebSocket. Nothing in it is percent-decoded, as there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerUrl {
    /// Whether it asks for TLS.
    pub(crate) tls: bool,
    /// Path of the WebSocket, if it asks for one.
    pub(crate) websocket: Option<String>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) topic: Option<String>,
}

impl BrokerUrl {
    /// Reads `mqtt[s]://[user[:password]@]host[:port][/topic]`, or `ws[s]://[user[:password]@]host[:port][/path]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (tls, is_websocket, rest) = match text.split_once("://") {
            Some(("mqtt", rest)) => (false, false, rest),
            Some(("mqtts", rest)) => (true, false, rest),
            Some(("ws", rest)) => (false, true, rest),
            Some(("wss", rest)) => (true, true, rest),
            _ => return Err("a broker URL starts with mqtt://, mqtts://, ws:// or wss://".to_owned()),
        };
        let (authority, topic) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, address) =
            authority.rsplit_once('@').map_or((None, authority), |(account, address)| (Some(account), address));
        let (username, password) = account.map_or((None, None), split_account);
        let (host, port) = split_port(address)?;
        if host.is_empty() {
            return Err("the URL names no host".to_owned());
        }
        let behind = (!topic.is_empty()).then(|| topic.to_owned());
        let (websocket, topic) = if is_websocket {
            (Some(behind.map_or_else(|| WEBSOCKET_PATH.to_owned(), |path| format!("/{path}"))), None)
        } else {
            (None, behind)
        };
        Ok(Self { tls, websocket, host: host.to_owned(), port, username, password, topic })
    }
}

/// `-h`: a host with or without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl Address {
    /// Reads `host`, `host:port`, an IPv6 address, or one in brackets with a port behind.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (host, port) =
            if !text.starts_with('[') && text.matches(':').count() > 1 { (text, None) } else { split_port(text)? };
        if host.is_empty() {
            return Err("name a host, such as gw-1 or gw-1:1883".to_owned());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

fn split_account(account: &str) -> (Option<String>, Option<String>) {
    match account.split_once(':') {
        Some((name, password)) => (Some(name.to_owned()), Some(password.to_owned())),
        None => (Some(account.to_owned()), None),
    }
}

fn split_port(address: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let Some(port) = port else { return Ok((host, None)) };
    match port.parse() {
        Ok(number @ 1..) => Ok((host, Some(number))),
        _ => Err(format!("{port:?} is no port; use 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_found() {
        let url = BrokerUrl::parse("mqtt://me:se:cret@broker:1884/a/b").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("broker", Some(1884)));
        assert_eq!((url.username.as_deref(), url.password.as_deref()), (Some("me"), Some("se:cret")));
        assert_eq!(url.topic.as_deref(), Some("a/b"));
    }

    #[test]
    fn a_websocket_has_a_path_instead_of_a_topic() {
        let url = BrokerUrl::parse("wss://me@broker:99/a/b").unwrap();
        assert_eq!((url.tls, url.websocket.as_deref(), url.port), (true, Some("/a/b"), Some(99)));
        assert_eq!((url.username.as_deref(), url.topic), (Some("me"), None));
        let url = BrokerUrl::parse("ws://broker").unwrap();
        assert_eq!((url.tls, url.websocket.as_deref(), url.port), (false, Some("/mqtt"), None));
    }

    #[test]
    fn parts_may_be_missing() {
        let url = BrokerUrl::parse("mqtt://broker").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.topic), ("broker", None, None));
        assert!(!url.tls && BrokerUrl::parse("mqtts://broker/t").unwrap().tls);
        let six = BrokerUrl::parse("mqtt://[::1]:1900/t").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("::1", Some(1900)));
    }

    #[test]
    fn addresses_have_hosts_and_may_have_ports() {
        for (text, host, port) in [
            ("gw-1", "gw-1", None),
            ("gw-1:1884", "gw-1", Some(1884)),
            ("::1", "::1", None),
            ("[::1]:1884", "::1", Some(1884)),
        ] {
            assert_eq!(Address::parse(text), Ok(Address { host: host.to_owned(), port }), "{text}");
        }
        assert!(Address::parse(":1884").is_err() && Address::parse("a:b").is_err() && Address::parse("").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, word) in
            [("http://h/t", "mqtt://"), ("mqtt:///t", "host"), ("mqtt://h:0/t", "port"), ("mqtt://h:x/t", "port")]
        {
            assert!(BrokerUrl::parse(text).unwrap_err().contains(word), "{text}");
        }
    }
}
