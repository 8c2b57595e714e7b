//! Nodes write their addresses into etcd and read those of the others (JSON gateway of its API version 3).
//!
//! Each node has a key, prefix and cluster name and node id, which holds its address and goes with its lease: the key of a node that
//! died vanishes when the lease is over.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::rounds::Service;
use super::web::{Failure, Trust, Web};
use super::{ADDRESSES_MAX, Addresses};

/// A lease lives for three rounds that get no answer, and not less than this.
const LEASE_MIN: Duration = Duration::from_secs(15);
const ROUNDS_PER_LEASE: u32 = 3;
/// Status of a token that does not hold any more.
const UNAUTHORIZED: u16 = 401;

/// Settings of etcd.
pub(crate) struct EtcdSettings {
    /// `http://host:port` or `https://host:port`, without a slash at the end.
    pub(crate) endpoints: Vec<String>,
    /// Prefix of all keys of the cluster.
    pub(crate) prefix: String,
    /// Rest of this node's key.
    pub(crate) node: String,
    /// Where other nodes find this one.
    pub(crate) me: SocketAddr,
    /// User and password.
    pub(crate) user: Option<(String, String)>,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) period: Duration,
}

pub(super) struct Etcd {
    settings: EtcdSettings,
    web: Web,
    /// The endpoint that has answered last.
    current: usize,
    token: Option<String>,
    lease: Option<String>,
}

impl Etcd {
    pub(super) fn new(mut settings: EtcdSettings) -> Result<Self, String> {
        let web = Web::new(&Trust { ca: settings.ca.take(), identity: settings.identity.take() })?;
        Ok(Self { settings, web, current: 0, token: None, lease: None })
    }

    fn call(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        let Some(endpoint) = self.settings.endpoints.get(self.current) else {
            return Err(Failure::Unreachable("there is no endpoint".to_owned()));
        };
        let result = self.web.post(&format!("{endpoint}/v3/{path}"), self.token.as_deref(), body);
        if let Err(Failure::Refused(UNAUTHORIZED, _)) = &result {
            self.token = None;
        }
        let named = |why| format!("{endpoint}: {why}");
        result.map_err(|failure| match failure {
            Failure::Unreachable(why) => Failure::Unreachable(named(why)),
            Failure::Refused(status, why) => Failure::Refused(status, named(why)),
        })
    }

    fn round(&mut self) -> Result<Addresses, Failure> {
        if let (None, Some((user, password))) = (&self.token, &self.settings.user) {
            let body = json!({ "name": user, "password": password });
            let answer = self.call("auth/authenticate", &body)?;
            self.token = text(&answer, "token").map(str::to_owned);
        }
        if !self.keep_lease()? {
            self.register()?;
        }
        let found = self.list()?;
        // Somebody may have removed the key, or it did not fit into the list.
        if found.addresses.contains(&self.settings.me) || found.addresses.len() >= ADDRESSES_MAX {
            return Ok(found);
        }
        self.register()?;
        self.list()
    }

    /// Whether the lease is there for some more time.
    fn keep_lease(&mut self) -> Result<bool, Failure> {
        let Some(lease) = self.lease.clone() else { return Ok(false) };
        let answer = self.call("lease/keepalive", &json!({ "ID": lease }))?;
        // A lease that is not there any more has no time to live.
        let left =
            answer.get("result").and_then(|result| text(result, "TTL")).and_then(|left| left.parse::<i64>().ok());
        Ok(left.is_some_and(|left| left > 0))
    }

    fn register(&mut self) -> Result<(), Failure> {
        self.lease = None;
        let time = self.settings.period.saturating_mul(ROUNDS_PER_LEASE).max(LEASE_MIN);
        let answer = self.call("lease/grant", &json!({ "TTL": time.as_secs().to_string() }))?;
        let Some(lease) = text(&answer, "ID").map(str::to_owned) else {
            return Err(Failure::Unreachable("its answer has no lease".to_owned()));
        };
        let key = encoded(&format!("{}{}", self.settings.prefix, self.settings.node));
        let value = encoded(&self.settings.me.to_string());
        self.call("kv/put", &json!({ "key": key, "value": value, "lease": lease }))?;
        self.lease = Some(lease);
        Ok(())
    }

    fn list(&mut self) -> Result<Addresses, Failure> {
        let prefix = self.settings.prefix.clone();
        let body = json!({
            "key": encoded(&prefix),
            "range_end": STANDARD.encode(end_of(prefix.as_bytes())),
            "limit": ADDRESSES_MAX.to_string(),
        });
        let answer = self.call("kv/range", &body)?;
        let mut found = Addresses::default();
        for entry in answer.get("kvs").and_then(Value::as_array).into_iter().flatten() {
            let decoded =
                |field| Some(String::from_utf8_lossy(&STANDARD.decode(text(entry, field)?).ok()?).into_owned());
            if let Some(address) = decoded("value").and_then(|value| value.parse().ok()) {
                found.addresses.insert(address);
            } else {
                let key = decoded("key").unwrap_or_default();
                found.failure = Some(format!("the value of {key} is no address; remove the key"));
            }
        }
        Ok(found)
    }
}

impl Service for Etcd {
    fn ask(&mut self) -> Result<Addresses, String> {
        let mut last = String::new();
        let mut may_log_in_again = self.token.is_some();
        let mut left = self.settings.endpoints.len();
        while left > 0 {
            let failure = match self.round() {
                Ok(found) => return Ok(found),
                Err(failure) => failure,
            };
            let is_token = matches!(failure, Failure::Refused(UNAUTHORIZED, _));
            last = failure.text();
            if is_token && std::mem::take(&mut may_log_in_again) {
                continue;
            }
            self.current = (self.current + 1) % self.settings.endpoints.len();
            left -= 1;
        }
        Err(last)
    }

    /// Takes the key away with the lease.
    fn farewell(&mut self) {
        if let Some(lease) = self.lease.take()
            && let Err(failure) = self.call("lease/revoke", &json!({ "ID": lease }))
        {
            tracing::debug!(why = failure.text(), "discovery.etcd: the lease was not given back; it expires");
        }
    }
}

/// The gateway writes numbers of 64 bits as text.
fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// The first key behind all that begin with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // "Up to the last key".
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(end_of(b"/sedge/"), b"/sedge0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
    }
}
