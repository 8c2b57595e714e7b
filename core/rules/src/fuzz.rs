//! Bodies of the fuzz targets. A stable test runs them, too, over the committed corpus and mutations of it.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::Timestamp;
use sedge_mqtt::{QoS, TopicName};

use crate::expression::{Scope, Tables, parse};
use crate::input::Input;
use crate::json::{Step, find, is_valid, read};
use crate::value::Value;
use crate::{Item, Machine, Rule};

/// Reads an expression and evaluates it on a message. The first line is the expression, the rest a payload.
///
/// Holds: no panic; faults lie within the text; what comes out is valid JSON.
pub fn expression(data: &[u8]) {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    let Some(Ok(text)) = lines.next().map(core::str::from_utf8) else { return };
    let payload = Bytes::copy_from_slice(lines.next().unwrap_or_default());
    let mut tables = Tables::default();
    let expression = match parse(text, &mut tables) {
        Ok(expression) => expression,
        Err(fault) => return assert!(fault.at <= text.len(), "{fault:?}"),
    };
    let Ok(topic) = TopicName::new("a/b/c") else { return };
    let input = Input {
        topic: &topic,
        payload: &payload,
        qos: QoS::AtLeastOnce,
        retain: false,
        properties: None,
        client: None,
    };
    let mut scope = Scope::of_message(&tables.fields, &input, 1_000);
    let value = scope.evaluate(&expression);
    let mut json = String::new();
    value.write_json(&mut json);
    assert!(is_valid(json.as_bytes()), "{json}");
    rule(text, &payload);
}

/// Runs a rule of one window whose value is this expression; every snapshot restores to itself.
fn rule(text: &str, payload: &Bytes) {
    let entry = |key: &str, text: &str| (key.to_owned(), Item::Text(text.to_owned()));
    let window = Item::Table(vec![("count".to_owned(), Item::Number(2.0))]);
    let select =
        Item::Table(vec![entry("last", &format!("last({text})")), entry("median", &format!("median({text})"))]);
    let entries = [("window".to_owned(), window), ("select".to_owned(), select), entry("where", text)];
    let Ok(rule) = Rule::compile("r", &entries) else { return };
    let rule = Arc::new(rule);
    let mut machine = Machine::new(Arc::clone(&rule));
    let Ok(topic) = TopicName::new("a/b/c") else { return };
    let input =
        Input { topic: &topic, payload, qos: QoS::AtMostOnce, retain: true, properties: None, client: Some("c") };
    for now in 0..3 {
        machine.handle(Timestamp::from_millis(now), &input);
        let snapshot = machine.snapshot();
        let again = Machine::restore(Arc::clone(&rule), &snapshot).map(|machine| machine.snapshot());
        assert_eq!(again, Ok(snapshot));
        while let Some(output) = machine.poll_output() {
            assert!(is_valid(&output.payload));
        }
    }
}

/// Looks for fields in a document, and reads a state. The first line is a path of keys and numbers, separated by spaces.
///
/// Holds: no panic; what is found lies in the document; what reads as a value is written as valid JSON.
pub fn scan(data: &[u8]) {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    let Some(Ok(path)) = lines.next().map(core::str::from_utf8) else { return };
    let document = lines.next().unwrap_or_default();
    let steps: Vec<Step> = path
        .split(' ')
        .filter(|step| !step.is_empty())
        .map(|step| step.parse().map_or_else(|_| Step::Key(step.into()), Step::Index))
        .collect();
    for length in 0..=steps.len() {
        let Some(found) = find(document, steps.get(..length).unwrap_or_default()) else { continue };
        assert!(!found.is_empty() && found.len() <= document.len());
        if let Some(value) = read(found) {
            let mut json = String::new();
            value.write_json(&mut json);
            assert!(is_valid(json.as_bytes()), "{json}");
            assert!(matches!(value, Value::Json(_)) || is_valid(found), "{found:?}");
        }
    }
    let count = Item::Text("count()".to_owned());
    let window = Item::Table(vec![("tumbling".to_owned(), Item::Number(1.0))]);
    if let Ok(rule) = Rule::compile("r", &[("select".to_owned(), count), ("window".to_owned(), window)])
        && let Ok(mut machine) = Machine::restore(Arc::new(rule), document)
    {
        machine.handle_timeout(Timestamp::from_millis(u64::MAX));
        while machine.poll_output().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    const CRATE: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn the_corpus_of_expressions_passes() {
        replay(CRATE, "expression", 5_000, super::expression);
    }

    #[test]
    fn the_corpus_of_documents_passes() {
        replay(CRATE, "scan", 5_000, super::scan);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
