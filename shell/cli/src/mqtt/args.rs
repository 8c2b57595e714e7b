//! Flags that both clients have.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use rustls::SupportedProtocolVersion;
use sedge_mqtt::{QoS, Version};

use super::url::{Address, BrokerUrl};
use crate::client::Proxy;

/// Connection flags of `sedge pub` and `sedge sub`, named as `mosquitto_pub` and `mosquitto_sub` name them.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct MqttArgs {
    /// Host of the broker, or host:port; may be repeated: the first that answers is used, and another one when it is lost
    /// [default: localhost]
    #[arg(short = 'h', long = "host", value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = Address::parse)]
    pub(crate) hosts: Vec<Address>,
    /// Port of the broker [default: 1883, with TLS 8883, of ws:// 8083, of wss:// 8084]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Broker, account and topic in one: mqtt://user:password@host:port/topic, or mqtts://; account and port may be left out;
    /// ws://host:port/path or wss:// for a WebSocket, whose path is /mqtt unless given
    #[arg(short = 'L', long, value_name = "URL", value_parser = BrokerUrl::parse, conflicts_with_all = ["hosts", "port"])]
    pub(crate) url: Option<BrokerUrl>,
    /// Unix socket of the broker, instead of -h and -p
    #[arg(long, value_name = "PATH", conflicts_with_all = ["hosts", "port", "url", "proxy", "local"])]
    pub(crate) unix: Option<PathBuf>,
    /// Address of this machine that the connection comes from
    #[arg(short = 'A', value_name = "ADDRESS")]
    pub(crate) local: Option<IpAddr>,
    /// SOCKS5 proxy between here and the broker: `socks5h://host`, with user:password@ before the host and :port behind it if needed
    #[arg(long, value_name = "URL", value_parser = Proxy::parse)]
    pub(crate) proxy: Option<Proxy>,
    /// Authorities that may have signed the broker's certificate (PEM), instead of those of the system; asks for TLS
    #[arg(long, value_name = "FILE")]
    pub(crate) cafile: Option<PathBuf>,
    /// Directory whose files are such authorities (PEM); asks for TLS
    #[arg(long, value_name = "DIR", conflicts_with = "cafile")]
    pub(crate) capath: Option<PathBuf>,
    /// Trust the authorities that the system trusts; asks for TLS
    #[arg(long, conflicts_with_all = ["cafile", "capath", "insecure"])]
    pub(crate) tls_use_os_certs: bool,
    /// Certificate to show (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Take any certificate of the broker: for tests; asks for TLS
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The only version of TLS to speak: tlsv1.2 or tlsv1.3 [default: both]
    #[arg(long, value_name = "VERSION", value_parser = parse_tls_version)]
    pub(crate) tls_version: Option<&'static SupportedProtocolVersion>,
    /// Protocol to ask for in the TLS handshake (ALPN)
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) tls_alpn: Option<String>,
    /// Accepted for compatibility: keys are PEM
    #[arg(long, value_name = "FORM", hide = true, value_parser = ["pem"])]
    pub(crate) keyform: Option<String>,
    /// Quality of service: 0, 1 or 2
    #[arg(short, long, value_name = "QOS", default_value = "0", value_parser = parse_qos)]
    pub(crate) qos: QoS,
    /// Client id [default: one made of the process id]
    #[arg(short, long, value_name = "ID", conflicts_with = "id_prefix", allow_hyphen_values = true)]
    pub(crate) id: Option<String>,
    /// Client id made of PREFIX and the process id
    #[arg(short = 'I', long, value_name = "PREFIX")]
    pub(crate) id_prefix: Option<String>,
    /// User name
    #[arg(short, long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) username: Option<String>,
    /// Password
    #[arg(short = 'P', long = "pw", value_name = "PASSWORD", requires = "username", allow_hyphen_values = true)]
    pub(crate) password: Option<String>,
    /// Keep alive in seconds, 0 for none
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) keepalive: u16,
    /// MQTT version: 311 or 5 [default: 311, and 5 where -D or -x ask for it]
    #[arg(short = 'V', long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) protocol_version: Option<Version>,
    /// Keep the session: do not start clean, and with MQTT 5 never let it expire unless -x says so
    #[arg(short = 'c', long = "disable-clean-session")]
    pub(crate) keep_session: bool,
    /// Seconds the session outlives the connection, -1 for ever (MQTT 5)
    #[arg(short = 'x', long, value_name = "SECONDS", value_parser = parse_expiry, allow_hyphen_values = true)]
    pub(crate) session_expiry_interval: Option<u32>,
    /// MQTT 5 property: PACKET NAME VALUE, or PACKET user-property NAME VALUE; may be repeated
    #[arg(short = 'D', long = "property", value_name = "PACKET NAME VALUE", action = ArgAction::Append)]
    pub(crate) properties: Vec<String>,
    /// Topic of the will
    #[arg(long, value_name = "TOPIC")]
    pub(crate) will_topic: Option<String>,
    /// Payload of the will
    #[arg(long, value_name = "PAYLOAD", requires = "will_topic", allow_hyphen_values = true)]
    pub(crate) will_payload: Option<String>,
    /// Quality of service of the will
    #[arg(long, value_name = "QOS", requires = "will_topic", value_parser = parse_qos)]
    pub(crate) will_qos: Option<QoS>,
    /// Retain the will
    #[arg(long, requires = "will_topic")]
    pub(crate) will_retain: bool,
    /// Report every packet on standard error
    #[arg(short, long)]
    pub(crate) debug: bool,
    /// Print no errors
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Accepted for compatibility: small packets are never held back
    #[arg(long, hide = true)]
    pub(crate) nodelay: bool,
    /// Print this help
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

fn parse_qos(text: &str) -> Result<QoS, String> {
    text.parse().ok().and_then(QoS::from_u8).ok_or_else(|| "the quality of service is 0, 1 or 2".to_owned())
}

fn parse_tls_version(text: &str) -> Result<&'static SupportedProtocolVersion, String> {
    match text {
        "tlsv1.2" => Ok(&rustls::version::TLS12),
        "tlsv1.3" => Ok(&rustls::version::TLS13),
        "tlsv1.1" | "tlsv1" => Err("TLS 1.1 and older are broken and not supported; use tlsv1.2 or tlsv1.3".to_owned()),
        _ => Err("use tlsv1.2 or tlsv1.3".to_owned()),
    }
}

fn parse_version(text: &str) -> Result<Version, String> {
    match text {
        "5" | "mqttv5" => Ok(Version::V5),
        "311" | "mqttv311" => Ok(Version::V311),
        "31" | "mqttv31" => Err("MQTT 3.1 is not supported; use 311 or 5".to_owned()),
        _ => Err("use 311 or 5".to_owned()),
    }
}

fn parse_expiry(text: &str) -> Result<u32, String> {
    match text {
        "-1" | "∞" => Ok(u32::MAX),
        _ => text.parse().ok().ok_or_else(|| "use seconds from 0 to 4294967294, or -1 for ever".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_both_names() {
        assert_eq!(parse_version("mqttv5"), Ok(Version::V5));
        assert_eq!(parse_version("311"), Ok(Version::V311));
        assert!(parse_version("mqttv31").unwrap_err().contains("3.1 is not supported"));
        assert!(parse_version("6").is_err());
    }

    #[test]
    fn for_ever_has_several_names() {
        for text in ["-1", "∞", "4294967295"] {
            assert_eq!(parse_expiry(text), Ok(u32::MAX), "{text}");
        }
        assert_eq!(parse_expiry("0"), Ok(0));
        assert!(parse_expiry("-2").is_err());
    }

    #[test]
    fn quality_of_service_has_three_values() {
        assert_eq!(parse_qos("2"), Ok(QoS::ExactlyOnce));
        assert!(parse_qos("3").is_err());
    }
}
