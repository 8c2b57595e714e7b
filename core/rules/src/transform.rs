//! Programs that a machine does not run itself: it hands the message to its owner's [`Transform`] and takes back what comes of it.

use core::fmt::Debug;

use bytes::Bytes;
use sedge_mqtt::Utf8;

use crate::input::{Input, RULE_PROPERTY};
use crate::value::write_text;

/// Runs the program of a rule.
pub trait Transform: Debug + Send {
    /// Runs the program on a message, a JSON document, and returns all outputs in order, or none.
    fn run(&mut self, message: &[u8]) -> Result<Vec<Made>, TransformError>;
}

/// An output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The text of a JSON value that is no string.
    Json(Bytes),
    /// The bytes of a string.
    Text(Bytes),
}

/// Reason why a program has made no outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransformError {
    /// The program has raised an error.
    Failed(String),
    /// The program has taken too much time or memory, or put out too much.
    OverBudget(String),
    /// Nothing runs programs here now; the message has to come once more.
    Broken(String),
}

/// The message as its program sees it.
pub(crate) fn document(input: &Input<'_>, now: u64, opaque: bool) -> String {
    let mut text = String::with_capacity(256 + input.payload.len());
    let member = |text: &mut String, name: &str| {
        text.push(if text.is_empty() { '{' } else { ',' });
        write_text(name, text);
        text.push(':');
    };
    member(&mut text, "topic");
    write_text(input.topic.as_str(), &mut text);
    member(&mut text, "payload");
    match core::str::from_utf8(input.payload) {
        Ok(_) | Err(_) if opaque => text.push_str("null"),
        Ok(payload) if crate::json::is_valid(input.payload) => text.push_str(payload),
        Ok(payload) => write_text(payload, &mut text),
        Err(_) => text.push_str("null"),
    }
    member(&mut text, "qos");
    text.push_str(&input.qos.as_u8().to_string());
    member(&mut text, "retain");
    text.push_str(if input.retain { "true" } else { "false" });
    member(&mut text, "time");
    text.push_str(&now.to_string());
    let content_type = input.properties.and_then(|properties| properties.content_type.as_ref());
    for (name, value) in [("client", input.client), ("content_type", content_type.map(Utf8::as_str))] {
        member(&mut text, name);
        match value {
            Some(value) => write_text(value, &mut text),
            None => text.push_str("null"),
        }
    }
    member(&mut text, "properties");
    text.push('{');
    let user = input.properties.map_or(&[][..], |properties| &properties.user[..]);
    for (number, (name, value)) in user.iter().filter(|(name, _)| name.as_str() != RULE_PROPERTY).enumerate() {
        if number > 0 {
            text.push(',');
        }
        write_text(name.as_str(), &mut text);
        text.push(':');
        write_text(value.as_str(), &mut text);
    }
    text.push_str("}}");
    text
}
