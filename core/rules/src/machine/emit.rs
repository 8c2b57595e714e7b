//! Outputs of a message or of a window that closes.

use bytes::Bytes;
use sedge_mqtt::{PublishProperties, TopicName, Utf8};
use smallvec::SmallVec;

use super::group::{Group, Window};
use crate::codec::{Reader, Writer};
use crate::definition::{Band, Rule, Select};
use crate::expression::Scope;
use crate::input::{Input, Output, RULE_PROPERTY, marks};
use crate::transform::Made;
use crate::value::{Value, write_text};

pub(super) type Values<'a> = SmallVec<[Value<'a>; 8]>;

/// Outcome of a window that closes.
pub(super) enum Emitted {
    Output(Box<Output>),
    HeldBack,
    Failed,
}

/// The selected values.
pub(super) fn values<'a>(rule: &'a Rule, scope: &mut Scope<'a>) -> Values<'a> {
    match &rule.select {
        Select::Payload => Values::new(),
        Select::One(expression) => [scope.evaluate(expression)].into_iter().collect(),
        Select::Object(values) => values.iter().map(|(_, expression)| scope.evaluate(expression)).collect(),
    }
}

fn payload(rule: &Rule, values: &Values<'_>) -> Bytes {
    let mut text = String::with_capacity(64);
    match (&rule.select, values.first()) {
        (Select::Object(names), _) => {
            for (number, ((name, _), value)) in names.iter().zip(values).enumerate() {
                text.push(if number == 0 { '{' } else { ',' });
                write_text(name, &mut text);
                text.push(':');
                value.write_json(&mut text);
            }
            text.push('}');
        }
        (Select::One(_), Some(Value::Json(json))) => Value::Json(json.as_ref().into()).write_json(&mut text),
        (Select::One(_), Some(value)) => value.write_plain(&mut text),
        (Select::One(_) | Select::Payload, _) => {}
    }
    Bytes::from(text)
}

/// The output of a message, by a rule that looks at nothing else.
pub(super) fn of_message<'a>(rule: &'a Rule, input: &'a Input<'a>, scope: &mut Scope<'a>) -> Option<Output> {
    let values = values(rule, scope);
    of_values(rule, input, scope, &values)
}

/// The output of a message with these selected values; nothing where its topic cannot be made.
pub(super) fn of_values<'a>(
    rule: &'a Rule,
    input: &'a Input<'a>,
    scope: &mut Scope<'a>,
    values: &Values<'a>,
) -> Option<Output> {
    let topic = topic(rule, input.topic, scope)?;
    // A payload that is passed on unchanged keeps the properties that say how to read it.
    let mut properties = match (&rule.select, input.properties) {
        (Select::Payload, Some(properties)) => {
            PublishProperties { topic_alias: None, subscription_ids: SmallVec::new(), ..properties.clone() }
        }
        (Select::Payload, None) => PublishProperties::default(),
        (Select::One(_) | Select::Object(_), _) => computed(rule),
    };
    if rule.select == Select::Payload && rule.reads_sparkplug() {
        properties = PublishProperties { user: properties.user, ..json() };
    }
    properties.user.retain(|(name, _)| name.as_str() != RULE_PROPERTY);
    properties.user.extend(marks(input.chain().chain([rule.name()])));
    let payload = if rule.select == Select::Payload { input.payload.clone() } else { payload(rule, values) };
    let source = input.topic.clone();
    Some(Output { topic, source, payload, qos: rule.qos, retain: rule.retain, properties })
}

/// The output that a program has made of a message.
pub(super) fn of_program(rule: &Rule, input: &Input<'_>, topic: Option<TopicName>, made: Made) -> Output {
    let (payload, mut properties) = match made {
        Made::Json(text) => (text, json()),
        Made::Text(text) => {
            let payload_is_utf8 = core::str::from_utf8(&text).is_ok().then_some(true);
            (text, PublishProperties { payload_is_utf8, ..PublishProperties::default() })
        }
    };
    properties.user = marks(input.chain().chain([rule.name()]));
    Output { topic, source: input.topic.clone(), payload, qos: rule.qos, retain: rule.retain, properties }
}

/// Topic of an output; `None` where the topic cannot be made.
#[expect(clippy::option_option, reason = "no topic to go to, and a topic that cannot be, are two things")]
pub(super) fn topic<'a>(rule: &'a Rule, source: &TopicName, scope: &mut Scope<'a>) -> Option<Option<TopicName>> {
    match &rule.to {
        None => below(rule, source),
        Some(template) => template.fill(scope).and_then(|topic| TopicName::new(&topic).ok()).map(Some),
    }
}

/// Without a template: the topic that it came from behind the prefix, if the rule has one; `None` where that is no topic.
#[expect(clippy::option_option, reason = "no topic to go to, and a topic that cannot be, are two things")]
fn below(rule: &Rule, source: &TopicName) -> Option<Option<TopicName>> {
    let Some(prefix) = &rule.below else { return Some(None) };
    TopicName::new(&format!("{prefix}{source}")).ok().map(Some)
}

/// Properties of a payload that the rule has computed.
fn computed(rule: &Rule) -> PublishProperties {
    match rule.select {
        Select::Object(_) => json(),
        Select::Payload | Select::One(_) => PublishProperties { content_type: None, ..json() },
    }
}

fn json() -> PublishProperties {
    let content_type = Some(Utf8::from_static("application/json"));
    PublishProperties { payload_is_utf8: Some(true), content_type, ..PublishProperties::default() }
}

/// The output of a window that closes.
pub(super) fn of_window(rule: &Rule, key: &[u8], group: &mut Group, window: &Window) -> Emitted {
    let mut reader = Reader(key);
    let own: Values<'_> = rule.group_by.iter().map(|_| reader.value().unwrap_or(Value::Null)).collect();
    let extent = window.extent(rule);
    let states = rule.aggregates.iter().zip(&window.states);
    let results: Values<'_> = states.map(|(aggregate, state)| aggregate.result(state, extent)).collect();
    let mut scope = Scope::empty(&rule.fields);
    (scope.group, scope.results, scope.window) = (&own, &results, Some(window.shown(rule)));
    let values = values(rule, &mut scope);
    if group.memory.as_ref().is_some_and(|memory| !has_moved(rule, Reader(memory), &values)) {
        return Emitted::HeldBack;
    }
    let Some(source) = group.source.clone() else { return Emitted::Failed };
    let Some(topic) = topic(rule, &source, &mut scope) else { return Emitted::Failed };
    let mut properties = computed(rule);
    properties.user = marks(window.chain.iter().map(|name| &**name).chain([rule.name()]));
    let payload = payload(rule, &values);
    if !rule.watched.is_empty() {
        group.memory = Some(memory(rule, &values));
    }
    Emitted::Output(Box::new(Output { topic, source, payload, qos: rule.qos, retain: rule.retain, properties }))
}

/// The watched ones of these values, as bytes to be compared with later.
pub(super) fn memory(rule: &Rule, values: &Values<'_>) -> Box<[u8]> {
    let mut writer = Writer::default();
    for watched in &rule.watched {
        writer.value(values.get(watched.number).unwrap_or(&Value::Null));
    }
    writer.0.into()
}

/// Whether a watched value has moved far enough since the last output.
pub(super) fn has_moved(rule: &Rule, mut memory: Reader<'_>, values: &Values<'_>) -> bool {
    rule.watched.iter().any(|watched| {
        let (Some(last), Some(value)) = (memory.value(), values.get(watched.number)) else { return true };
        let (Some(before), Some(now)) = (last.as_number(), value.as_number()) else { return last != *value };
        match watched.band {
            Band::Any => last != *value,
            Band::Absolute(band) => (now - before).abs() > band,
            Band::Relative(part) => (now - before).abs() > before.abs() * part,
        }
    })
}
