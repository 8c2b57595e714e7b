//! From flags to a CONNECT and the broker to send it to.

use std::sync::Arc;

use bytes::Bytes;
use rustls::ClientConfig;
use sedge_mqtt::{Connect, ConnectProperties, Disconnect, ReasonCode, TopicName, Utf8, Version, Will};

use super::{MqttArgs, Properties};
use crate::client::Server;
use crate::failure::Failure;

/// Everything needed to open a conversation, checked.
#[derive(Debug)]
pub(crate) struct Target {
    /// Where to try, in this order; at least one.
    pub(crate) servers: Vec<Server>,
    pub(crate) connect: Connect,
    pub(crate) disconnect: Disconnect,
    /// Topic of `-L`.
    pub(crate) url_topic: Option<String>,
}

impl Target {
    /// Reads the flags; `role` becomes part of the client id if none is given.
    pub(crate) fn new(args: &MqttArgs, properties: &Properties, role: &str) -> Result<Self, Failure> {
        let url = args.url.as_ref();
        let tls = tls(args)?;
        let websocket = url.and_then(|url| url.websocket.clone());
        let usual = match (tls.is_some(), websocket.is_some()) {
            (false, false) => 1883,
            (true, false) => 8883,
            (false, true) => 8083,
            (true, true) => 8084,
        };
        let mut addresses: Vec<(&str, Option<u16>)> =
            args.hosts.iter().map(|address| (address.host.as_str(), address.port)).collect();
        addresses.extend(url.map(|url| (url.host.as_str(), url.port)));
        if addresses.is_empty() {
            addresses.push(("localhost", None));
        }
        let server = |(host, port): (&str, Option<u16>)| Server {
            tls: tls.clone(),
            websocket: websocket.clone(),
            unix: args.unix.clone(),
            local: args.local,
            proxy: args.proxy.clone(),
            ..Server::new(host, port.or(args.port).unwrap_or(usual))
        };
        let version = version(args)?;
        Ok(Self {
            servers: addresses.into_iter().map(server).collect(),
            connect: connect(args, properties, version, role)?,
            disconnect: disconnect(properties),
            url_topic: url.and_then(|url| url.topic.clone()),
        })
    }
}

/// Settings of TLS with the authorities to trust, if the flags ask for TLS.
fn tls(args: &MqttArgs) -> Result<Option<Arc<ClientConfig>>, Failure> {
    let url = args.url.as_ref().is_some_and(|url| url.tls);
    let files = [&args.cafile, &args.capath, &args.cert];
    if !url && files.iter().all(|file| file.is_none()) && !args.insecure && !args.tls_use_os_certs {
        if args.tls_version.is_some() || args.tls_alpn.is_some() {
            let text =
                "--tls-version and --tls-alpn need TLS: give --cafile, --capath, --tls-use-os-certs or --insecure";
            return Err(Failure::usage(text));
        }
        return Ok(None);
    }
    let files = sedge_bench::TlsFiles {
        ca: args.cafile.clone().or_else(|| args.capath.clone()),
        cert: args.cert.clone(),
        key: args.key.clone(),
        insecure: args.insecure,
        version: args.tls_version,
    };
    // The flag has longer names here.
    let flag = if args.capath.is_some() { "--capath " } else { "--cafile " };
    let config =
        sedge_bench::tls_client(&files).map_err(|error| Failure::usage(error.to_string().replace("--ca ", flag)))?;
    let Some(protocol) = &args.tls_alpn else { return Ok(Some(config)) };
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(Some(Arc::new(config)))
}

/// Asking for a property of MQTT 5 asks for MQTT 5.
fn version(args: &MqttArgs) -> Result<Version, Failure> {
    let asks = if args.session_expiry_interval.is_some() {
        Some("-x")
    } else if args.properties.is_empty() {
        None
    } else {
        Some("-D")
    };
    match (args.protocol_version, asks) {
        (Some(Version::V311), Some(flag)) => {
            Err(Failure::usage(format!("{flag} needs MQTT 5; leave out -V 311 or use -V 5")))
        }
        (Some(version), _) => Ok(version),
        (None, asks) => Ok(if asks.is_some() { Version::V5 } else { Version::V311 }),
    }
}

fn connect(args: &MqttArgs, properties: &Properties, version: Version, role: &str) -> Result<Connect, Failure> {
    let url = args.url.as_ref();
    let username = args.username.as_deref().or_else(|| url.and_then(|url| url.username.as_deref()));
    let password = args.password.as_deref().or_else(|| url.and_then(|url| url.password.as_deref()));
    let process = std::process::id();
    let client_id = match (&args.id, &args.id_prefix) {
        (Some(id), _) => id.clone(),
        (None, Some(prefix)) => format!("{prefix}{process}"),
        // A session that is kept has to be found again, so that a name that changes with every run is of no use to it.
        (None, None) if args.keep_session => return Err(Failure::usage("-c needs a client id; give one with -i")),
        (None, None) => format!("sedge_{role}_{process}"),
    };
    Ok(Connect {
        version,
        bridge: false,
        clean_start: !args.keep_session,
        keep_alive: args.keepalive,
        client_id: text("-i", &client_id)?,
        will: will(args, properties)?,
        username: username.map(|name| text("-u", name)).transpose()?,
        password: password.map(|word| Bytes::copy_from_slice(word.as_bytes())),
        properties: connect_properties(args, properties, version)?,
    })
}

fn connect_properties(
    args: &MqttArgs,
    properties: &Properties,
    version: Version,
) -> Result<ConnectProperties, Failure> {
    let mut wanted = properties.connect.clone();
    if version == Version::V311 {
        return Ok(wanted);
    }
    if wanted.session_expiry.is_some() && args.session_expiry_interval.is_some() {
        return Err(Failure::usage("-x and -D CONNECT session-expiry-interval say the same; give one of them"));
    }
    let kept = args.keep_session.then_some(u32::MAX);
    wanted.session_expiry = wanted.session_expiry.or(args.session_expiry_interval).or(kept);
    Ok(wanted)
}

fn will(args: &MqttArgs, properties: &Properties) -> Result<Option<Box<Will>>, Failure> {
    let Some(topic) = &args.will_topic else { return Ok(None) };
    let topic = TopicName::new(topic).map_err(|error| Failure::usage(format!("--will-topic {topic}: {error}")))?;
    let payload = args.will_payload.as_deref().unwrap_or_default();
    if payload.len() > usize::from(u16::MAX) {
        return Err(Failure::usage("--will-payload: a will has at most 65535 bytes"));
    }
    Ok(Some(Box::new(Will {
        topic,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos: args.will_qos.unwrap_or_default(),
        retain: args.will_retain,
        properties: properties.will.clone(),
    })))
}

fn disconnect(properties: &Properties) -> Disconnect {
    Disconnect {
        reason: ReasonCode::Success,
        session_expiry: properties.disconnect_expiry,
        reason_string: properties.disconnect_reason.clone(),
        user: properties.disconnect_user.clone(),
        server_reference: None,
    }
}

fn text(flag: &str, value: &str) -> Result<Utf8, Failure> {
    Utf8::new(value).map_err(|error| Failure::usage(format!("{flag} {value}: {error}")))
}
