//! `-D PACKET NAME VALUE`.

use bytes::Bytes;
use sedge_mqtt::{ConnectProperties, PublishProperties, UserProperties, Utf8, WillProperties};

use super::rewrite::SEPARATOR;
use crate::failure::Failure;

/// All properties given on the command line, by the packet they go with.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    pub(crate) connect: ConnectProperties,
    pub(crate) will: WillProperties,
    pub(crate) publish: PublishProperties,
    pub(crate) subscription_id: Option<u32>,
    pub(crate) subscribe_user: UserProperties,
    pub(crate) unsubscribe_user: UserProperties,
    pub(crate) disconnect_expiry: Option<u32>,
    pub(crate) disconnect_reason: Option<Utf8>,
    pub(crate) disconnect_user: UserProperties,
}

impl Properties {
    /// Reads the text that [`super::fold_properties`] has made of each `-D`.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, Failure> {
        let mut properties = Self::default();
        for text in texts {
            let mut parts = text.split(SEPARATOR);
            let packet = parts.next().unwrap_or_default();
            let name = parts.next().unwrap_or_default();
            let values: Vec<&str> = parts.collect();
            properties
                .add(packet, name, &values)
                .map_err(|what| Failure::usage(format!("-D {packet} {name} {}: {what}", values.join(" "))))?;
        }
        Ok(properties)
    }

    fn add(&mut self, packet: &str, name: &str, values: &[&str]) -> Result<(), String> {
        let packet = packet.to_ascii_lowercase();
        let first = values.first().copied().unwrap_or_default();
        if name == "user-property" {
            let [key, value] = values else { return Err("a user property has a name and a value".to_owned()) };
            self.user(&packet)?.push((text(key)?, text(value)?));
            return Ok(());
        }
        match packet.as_str() {
            "connect" => self.add_connect(name, first),
            "will" => self.add_will(name, first),
            "publish" => self.add_publish(name, first),
            "subscribe" if name == "subscription-identifier" => set(&mut self.subscription_id, identifier(first)?),
            "disconnect" if name == "session-expiry-interval" => set(&mut self.disconnect_expiry, number(first)?),
            "disconnect" if name == "reason-string" => set(&mut self.disconnect_reason, text(first)?),
            "subscribe" | "unsubscribe" | "disconnect" => Err(unknown(&packet)),
            _ => Err(unknown_packet()),
        }
    }

    fn user(&mut self, packet: &str) -> Result<&mut UserProperties, String> {
        match packet {
            "connect" => Ok(&mut self.connect.user),
            "will" => Ok(&mut self.will.user),
            "publish" => Ok(&mut self.publish.user),
            "subscribe" => Ok(&mut self.subscribe_user),
            "unsubscribe" => Ok(&mut self.unsubscribe_user),
            "disconnect" => Ok(&mut self.disconnect_user),
            _ => Err(unknown_packet()),
        }
    }

    fn add_connect(&mut self, name: &str, value: &str) -> Result<(), String> {
        let connect = &mut self.connect;
        match name {
            "session-expiry-interval" => set(&mut connect.session_expiry, number(value)?),
            "receive-maximum" => set(&mut connect.receive_maximum, not_zero(number(value)?)?),
            "maximum-packet-size" => set(&mut connect.maximum_packet_size, not_zero(number(value)?)?),
            "topic-alias-maximum" => set(&mut connect.topic_alias_maximum, number(value)?),
            "request-response-information" => set(&mut connect.request_response_information, flag(value)?),
            "request-problem-information" => set(&mut connect.request_problem_information, flag(value)?),
            "authentication-method" => set(&mut connect.authentication_method, text(value)?),
            "authentication-data" => set(&mut connect.authentication_data, data(value)),
            _ => Err(unknown("connect")),
        }
    }

    fn add_will(&mut self, name: &str, value: &str) -> Result<(), String> {
        let will = &mut self.will;
        match name {
            "will-delay-interval" => set(&mut will.delay, number(value)?),
            "payload-format-indicator" => set(&mut will.payload_is_utf8, flag(value)?),
            "message-expiry-interval" => set(&mut will.message_expiry, number(value)?),
            "content-type" => set(&mut will.content_type, text(value)?),
            "response-topic" => set(&mut will.response_topic, text(value)?),
            "correlation-data" => set(&mut will.correlation_data, data(value)),
            _ => Err(unknown("will")),
        }
    }

    fn add_publish(&mut self, name: &str, value: &str) -> Result<(), String> {
        let publish = &mut self.publish;
        match name {
            "payload-format-indicator" => set(&mut publish.payload_is_utf8, flag(value)?),
            "message-expiry-interval" => set(&mut publish.message_expiry, number(value)?),
            "topic-alias" => set(&mut publish.topic_alias, not_zero(number(value)?)?),
            "content-type" => set(&mut publish.content_type, text(value)?),
            "response-topic" => set(&mut publish.response_topic, text(value)?),
            "correlation-data" => set(&mut publish.correlation_data, data(value)),
            _ => Err(unknown("publish")),
        }
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.replace(value).is_some() {
        return Err("given twice".to_owned());
    }
    Ok(())
}

fn unknown(packet: &str) -> String {
    let names = match packet {
        "connect" => {
            "session-expiry-interval, receive-maximum, maximum-packet-size, topic-alias-maximum, \
             request-response-information, request-problem-information, authentication-method, authentication-data, \
             user-property"
        }
        "will" => {
            "will-delay-interval, payload-format-indicator, message-expiry-interval, content-type, response-topic, \
             correlation-data, user-property"
        }
        "publish" => {
            "payload-format-indicator, message-expiry-interval, topic-alias, content-type, response-topic, \
             correlation-data, user-property"
        }
        "subscribe" => "subscription-identifier, user-property",
        "disconnect" => "session-expiry-interval, reason-string, user-property",
        _ => "user-property",
    };
    format!("no such property of {packet}; it has {names}")
}

fn unknown_packet() -> String {
    "properties go with connect, will, publish, subscribe, unsubscribe or disconnect".to_owned()
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().ok().ok_or_else(|| format!("{value:?} is no number in the range of the property"))
}

fn not_zero<T: Default + PartialEq>(value: T) -> Result<T, String> {
    if value == T::default() { Err("0 is not allowed".to_owned()) } else { Ok(value) }
}

fn identifier(value: &str) -> Result<u32, String> {
    match number(value)? {
        id @ 1..=268_435_455 => Ok(id),
        _ => Err("a subscription identifier is 1 to 268435455".to_owned()),
    }
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err("use 0 or 1".to_owned()),
    }
}

fn text(value: &str) -> Result<Utf8, String> {
    Utf8::new(value).map_err(|error| error.to_string())
}

fn data(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(parts: &[&[&str]]) -> Result<Properties, String> {
        let texts: Vec<String> = parts.iter().map(|parts| parts.join(&SEPARATOR.to_string())).collect();
        Properties::parse(&texts).map_err(|failure| failure.message.unwrap())
    }

    #[test]
    fn properties_go_to_their_packets() {
        let properties = parse(&[
            &["CONNECT", "receive-maximum", "7"],
            &["publish", "content-type", "text/plain"],
            &["PUBLISH", "user-property", "a", "b"],
            &["will", "will-delay-interval", "5"],
            &["subscribe", "subscription-identifier", "3"],
            &["disconnect", "session-expiry-interval", "0"],
        ])
        .unwrap();
        assert_eq!(properties.connect.receive_maximum, Some(7));
        assert_eq!(properties.publish.content_type.unwrap(), "text/plain");
        assert_eq!(properties.publish.user.len(), 1);
        assert_eq!(properties.will.delay, Some(5));
        assert_eq!(properties.subscription_id, Some(3));
        assert_eq!(properties.disconnect_expiry, Some(0));
    }

    #[test]
    fn mistakes_are_named() {
        for (parts, word) in [
            (["puback", "reason-string", "x"], "connect, will"),
            (["publish", "receive-maximum", "1"], "content-type"),
            (["connect", "receive-maximum", "0"], "0 is not allowed"),
            (["connect", "receive-maximum", "65536"], "range"),
            (["subscribe", "subscription-identifier", "268435456"], "268435455"),
            (["publish", "payload-format-indicator", "yes"], "0 or 1"),
        ] {
            let message = parse(&[&parts]).unwrap_err();
            assert!(message.contains(word) && message.contains(parts[1]), "{message}");
        }
        let twice = parse(&[&["publish", "content-type", "a"], &["publish", "content-type", "b"]]);
        assert!(twice.unwrap_err().contains("twice"));
    }
}
