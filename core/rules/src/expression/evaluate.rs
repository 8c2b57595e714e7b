//! Evaluation of an expression for a message, or for a window that closes.

use smallvec::SmallVec;

use super::{Expression, Field, Operator};
use crate::input::Input;
use crate::json;
use crate::value::Value;

/// Message or window that expressions are evaluated on. Each field is read once, when an expression first asks for it.
pub(crate) struct Scope<'a> {
    fields: &'a [Field],
    read: SmallVec<[Option<Value<'a>>; 8]>,
    input: Option<&'a Input<'a>>,
    /// Time at which the message reached the rule.
    now: u64,
    /// Whether the payload is small enough to be looked into.
    pub(crate) opaque: bool,
    /// The values of the group.
    pub(crate) group: &'a [Value<'a>],
    /// The results of the aggregates.
    pub(crate) results: &'a [Value<'a>],
    /// When the window began and ended.
    pub(crate) window: Option<(u64, u64)>,
}

impl<'a> Scope<'a> {
    /// A message that has reached the rule at `now`.
    pub(crate) fn of_message(fields: &'a [Field], input: &'a Input<'a>, now: u64) -> Self {
        Self { input: Some(input), now, read: fields.iter().map(|_| None).collect(), ..Self::empty(fields) }
    }

    /// No message: a window that closes.
    pub(crate) fn empty(fields: &'a [Field]) -> Self {
        Self {
            fields,
            read: SmallVec::new(),
            input: None,
            now: 0,
            opaque: false,
            group: &[],
            results: &[],
            window: None,
        }
    }

    /// The value of `expression` for this message or window.
    pub(crate) fn evaluate(&mut self, expression: &'a Expression) -> Value<'a> {
        match expression {
            Expression::Null => Value::Null,
            Expression::Bool(flag) => Value::Bool(*flag),
            Expression::Number(number) => Value::Number(*number),
            Expression::Text(text) => Value::text(text),
            Expression::Field(field, _) => self.field(*field),
            Expression::Aggregate(aggregate, _) => self.results.get(*aggregate).cloned().unwrap_or(Value::Null),
            Expression::Group(value) => self.group.get(*value).cloned().unwrap_or(Value::Null),
            Expression::GroupLevel(value, level) => {
                let topic = self.group.get(*value).and_then(Value::as_text);
                let found = topic.and_then(|topic| topic.split('/').nth(*level));
                found.map_or(Value::Null, |level| Value::Text(level.to_owned().into()))
            }
            Expression::Not(inner) => Value::Bool(!self.evaluate(inner).is_true()),
            Expression::Negative(inner) => {
                self.evaluate(inner).as_number().map_or(Value::Null, |number| Value::Number(-number))
            }
            Expression::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expression::Call(function, arguments, _) => {
                let mut values: SmallVec<[Value<'a>; 4]> =
                    arguments.iter().map(|argument| self.evaluate(argument)).collect();
                function.call(&mut values, self.window)
            }
        }
    }

    fn binary(&mut self, operator: Operator, left: &'a Expression, right: &'a Expression) -> Value<'a> {
        let left = self.evaluate(left);
        let is_true = left.is_true();
        if operator == Operator::And && !is_true || operator == Operator::Or && is_true {
            return Value::Bool(is_true);
        }
        let right = self.evaluate(right);
        let order = |wanted: fn(core::cmp::Ordering) -> bool| Value::Bool(left.order(&right).is_some_and(wanted));
        let numbers = |compute: fn(f64, f64) -> f64| match (left.as_number(), right.as_number()) {
            (Some(one), Some(two)) => Value::number(compute(one, two)),
            _ => Value::Null,
        };
        match operator {
            Operator::And | Operator::Or => Value::Bool(right.is_true()),
            Operator::Equal => Value::Bool(left == right),
            Operator::NotEqual => Value::Bool(left != right),
            Operator::Less => order(core::cmp::Ordering::is_lt),
            Operator::LessOrEqual => order(core::cmp::Ordering::is_le),
            Operator::Greater => order(core::cmp::Ordering::is_gt),
            Operator::GreaterOrEqual => order(core::cmp::Ordering::is_ge),
            Operator::Add => numbers(|one, two| one + two),
            Operator::Subtract => numbers(|one, two| one - two),
            Operator::Multiply => numbers(|one, two| one * two),
            Operator::Divide => numbers(|one, two| one / two),
            Operator::Remainder => numbers(|one, two| one % two),
        }
    }

    fn field(&mut self, number: usize) -> Value<'a> {
        if let Some(Some(value)) = self.read.get(number) {
            return value.clone();
        }
        let value = self.look(number).unwrap_or(Value::Null);
        if let Some(slot) = self.read.get_mut(number) {
            *slot = Some(value.clone());
        }
        value
    }

    fn look(&self, number: usize) -> Option<Value<'a>> {
        let input = self.input?;
        Some(match self.fields.get(number)? {
            Field::Topic => Value::text(input.topic.as_str()),
            Field::Level(level) => Value::text(input.topic.levels().nth(*level)?),
            Field::Payload(_) if self.opaque => return None,
            Field::Payload(path) => match json::find(input.payload, path).and_then(json::read) {
                Some(value) => value,
                // A payload that is no JSON is a text.
                None if path.is_empty() => Value::text(core::str::from_utf8(input.payload).ok()?),
                None => return None,
            },
            Field::Property(name) => {
                let (_, value) = input.properties?.user.iter().find(|(own, _)| own.as_str() == name)?;
                Value::text(value.as_str())
            }
            Field::ContentType => Value::text(input.properties?.content_type.as_ref()?.as_str()),
            Field::Qos => Value::Number(f64::from(input.qos.as_u8())),
            Field::Retain => Value::Bool(input.retain),
            Field::Client => Value::text(input.client?),
            Field::Time => Value::count(self.now),
        })
    }
}
