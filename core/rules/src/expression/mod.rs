//! The language of `where`, `select`, `group_by` and of what stands in braces in `to`.

mod evaluate;
mod function;
mod parse;
mod token;

use crate::aggregate::Aggregate;
use crate::json::Step;

pub(crate) use evaluate::Scope;
pub(crate) use function::Function;
pub(crate) use parse::parse;

/// Longest text of an expression in bytes.
pub(crate) const TEXT_MAX: usize = 4096;
/// Most operators, operands and calls in one expression.
pub(crate) const NODES_MAX: usize = 500;
/// Deepest nesting of an expression.
pub(crate) const DEPTH_MAX: usize = 50;
/// Most different fields that one rule looks at.
pub(crate) const FIELDS_MAX: usize = 64;
/// Most different aggregates of one rule.
pub(crate) const AGGREGATES_MAX: usize = 32;

/// A part of a message that a rule can look at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    /// The topic name.
    Topic,
    /// One level of the topic name, counted from 0.
    Level(usize),
    /// A value within the payload; the whole payload where the path is empty.
    Payload(Vec<Step>),
    /// A user property by its name.
    Property(String),
    /// Content type.
    ContentType,
    /// Quality of service.
    Qos,
    /// Whether it was to be retained.
    Retain,
    /// Client id of the publisher.
    Client,
    /// Time at which the message reached the rule, in milliseconds since 1970.
    Time,
}

/// Where something stands in its text. Does not count when expressions are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) usize);

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Operators between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    /// Whether it gives true or false.
    const fn is_logical(self) -> bool {
        !matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Remainder)
    }
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Null,
    Bool(bool),
    Number(f64),
    Text(Box<str>),
    /// A field of the message, by its number in [`Tables::fields`].
    Field(usize, At),
    /// An aggregate over the window, by its number in [`Tables::aggregates`].
    Aggregate(usize, At),
    /// A value of the group, by its number in `group_by`.
    Group(usize),
    /// A level of a topic that is a value of the group: number in `group_by`, level.
    GroupLevel(usize, usize),
    Not(Box<Self>),
    Negative(Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
    Call(Function, Vec<Self>, At),
}

impl Expression {
    /// Calls `visit` with every expression of this one, itself first.
    pub(crate) fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        match self {
            Self::Not(inner) | Self::Negative(inner) => inner.walk(visit),
            Self::Binary(_, left, right) => {
                left.walk(visit);
                right.walk(visit);
            }
            Self::Call(_, arguments, _) => arguments.iter().for_each(|argument| argument.walk(visit)),
            Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::Field(..)
            | Self::Aggregate(..)
            | Self::Group(_)
            | Self::GroupLevel(..) => {}
        }
    }

    /// Whether it can be true: `where = "payload.value + 1"` selects nothing, ever.
    pub(crate) fn can_be_true(&self) -> bool {
        match self {
            Self::Null | Self::Number(_) | Self::Text(_) | Self::Negative(_) => false,
            Self::Binary(operator, ..) => operator.is_logical(),
            Self::Call(function, ..) => function.can_be_true(),
            Self::Bool(_)
            | Self::Field(..)
            | Self::Aggregate(..)
            | Self::Group(_)
            | Self::GroupLevel(..)
            | Self::Not(_) => true,
        }
    }
}

/// Fields and aggregates that the expressions of one rule refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// Fields of a message, each once.
    pub(crate) fields: Vec<Field>,
    /// Aggregates over a window, each once.
    pub(crate) aggregates: Vec<Aggregate>,
}
