//! Topics with gaps: `plant/{1}/mean`, `site/{payload.site}/{topic[2]}`.

use crate::error::Fault;
use crate::expression::{Expression, Field, Scope, Tables, parse};
use crate::value::Value;

/// Longest topic that comes out, in bytes.
const TOPIC_MAX: usize = 4096;

/// A topic whose gaps are filled for each output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(pub(crate) Vec<Part>);

/// A piece of a topic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    /// An expression in braces, whose value is filled in.
    Gap(Gap),
}

/// An expression in braces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gap {
    /// Place in the template's text where the expression begins.
    pub(crate) at: usize,
    pub(crate) expression: Expression,
    /// Whether the expression stands for a whole topic, which may have levels.
    whole_topic: bool,
}

impl Template {
    /// Reads `text`. A number in braces is a level of the topic, counted from 0.
    pub(crate) fn parse(text: &str, tables: &mut Tables) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(Fault::new(0, "a topic has at least one character"));
        }
        if text.starts_with('$') {
            return Err(Fault::new(0, "topics that start with $ are the broker's own"));
        }
        let mut parts = Vec::new();
        let (mut rest, mut at) = (text, 0);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, behind)) = after.split_once('}') else {
                return Err(Fault::new(at + before.len(), "this brace has no end: add }"));
            };
            let start = at + before.len() + 1;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let expression = gap(inside, start, tables)?;
            let whole_topic =
                matches!(expression, Expression::Field(field, _) if tables.fields.get(field) == Some(&Field::Topic));
            parts.push(Part::Gap(Gap { at: start, expression, whole_topic }));
            at = start + inside.len() + 1;
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        for part in &parts {
            let Part::Text(part) = part else { continue };
            if let Some(wrong) = part.find(['+', '#', '\0', '}']) {
                let what = "messages are published to topics, not to filters: no +, # or } here";
                return Err(Fault::new(text.find(part.as_str()).unwrap_or(0) + wrong, what));
            }
        }
        Ok(Self(parts))
    }

    /// The topic with its gaps filled; nothing where a gap has no value, or one that would leave its level.
    pub(crate) fn fill<'a>(&'a self, scope: &mut Scope<'a>) -> Option<String> {
        let mut topic = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => topic.push_str(text),
                Part::Gap(gap) => {
                    let value = scope.evaluate(&gap.expression);
                    if matches!(value, Value::Null | Value::Json(_)) {
                        return None;
                    }
                    let start = topic.len();
                    value.write_plain(&mut topic);
                    let filled = topic.get(start..)?;
                    if filled.contains(['+', '#', '\0']) || filled.contains('/') && !gap.whole_topic {
                        return None;
                    }
                }
            }
        }
        (!topic.is_empty() && !topic.starts_with('$') && topic.len() <= TOPIC_MAX).then_some(topic)
    }
}

fn gap(inside: &str, at: usize, tables: &mut Tables) -> Result<Expression, Fault> {
    let levels = inside.trim();
    let is_level = !levels.is_empty() && levels.bytes().all(|byte| byte.is_ascii_digit());
    if !is_level {
        return parse(inside, tables).map_err(|fault| Fault::new(at + fault.at, fault.what));
    }
    parse(&format!("topic[{levels}]"), tables).map_err(|fault| Fault::new(at, fault.what))
}
