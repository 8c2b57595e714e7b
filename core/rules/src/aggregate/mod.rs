//! Aggregates over a window. Each can be fed, joined with another of its kind (sessions that grow together), and written down.

mod distinct;
mod quantile;

use std::borrow::Cow;

use self::distinct::Distinct;
use self::quantile::Quantile;
use crate::codec::{Reader, Writer};
use crate::expression::Expression;
use crate::value::{Value, from_u64};

/// Largest value in bytes that `first` and `last` keep.
const KEPT_MAX: usize = 4096;

/// Function that an aggregate computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Count,
    Delta,
    Distinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Percentile,
    Rate,
    Stddev,
    Sum,
}

/// Name, aggregate, least and most arguments.
pub(crate) const AGGREGATES: [(&str, Kind, usize, usize); 13] = [
    ("count", Kind::Count, 0, 1),
    ("delta", Kind::Delta, 1, 1),
    ("distinct", Kind::Distinct, 1, 1),
    ("first", Kind::First, 1, 1),
    ("last", Kind::Last, 1, 1),
    ("max", Kind::Max, 1, 1),
    ("mean", Kind::Mean, 1, 1),
    ("median", Kind::Percentile, 1, 1),
    ("min", Kind::Min, 1, 1),
    ("percentile", Kind::Percentile, 2, 2),
    ("rate", Kind::Rate, 0, 1),
    ("stddev", Kind::Stddev, 1, 1),
    ("sum", Kind::Sum, 1, 1),
];

/// An aggregate of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) kind: Kind,
    /// Expression whose values are aggregated; `None`: the messages themselves.
    pub(crate) argument: Option<Expression>,
    /// Percentile to compute.
    pub(crate) parameter: f64,
}

/// Extent of a window when it closes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Milliseconds from the window's begin to its end.
    pub(crate) length: u64,
    /// Whether the window was as long as its messages were apart: sessions and counts.
    pub(crate) by_messages: bool,
}

/// A value and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    time: u64,
    value: f64,
}

/// State of an aggregate: a summary of the values it has taken so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// Count, and rate of messages.
    Count(u64),
    /// Sum and mean; `lost` is the rounding error of the sum (Neumaier).
    Sum {
        count: u64,
        sum: f64,
        lost: f64,
    },
    /// Standard deviation (Welford).
    Moments {
        count: u64,
        mean: f64,
        squares: f64,
    },
    /// Least or greatest.
    Extreme(Option<f64>),
    /// First or last by time: the value as bytes.
    Edge(Option<(u64, Box<[u8]>)>),
    /// Growth from the first to the last.
    Span(Option<(Point, Point)>),
    Quantile(Quantile),
    Distinct(Distinct),
}

impl Aggregate {
    /// The state before the first message.
    pub(crate) fn start(&self) -> State {
        match self.kind {
            Kind::Rate if self.argument.is_some() => State::Span(None),
            Kind::Count | Kind::Rate => State::Count(0),
            Kind::Sum | Kind::Mean => State::Sum { count: 0, sum: 0.0, lost: 0.0 },
            Kind::Stddev => State::Moments { count: 0, mean: 0.0, squares: 0.0 },
            Kind::Min | Kind::Max => State::Extreme(None),
            Kind::First | Kind::Last => State::Edge(None),
            Kind::Delta => State::Span(None),
            Kind::Percentile => State::Quantile(Quantile::default()),
            Kind::Distinct => State::Distinct(Distinct::default()),
        }
    }

    /// Whether the size of the aggregate's state depends on the values that it has taken.
    pub(crate) const fn grows(&self) -> bool {
        matches!(self.kind, Kind::First | Kind::Last | Kind::Percentile | Kind::Distinct)
    }

    /// Adds a message of `time`; `value` is the value of the argument. A value that does not fit the aggregate is passed over, and so is null.
    pub(crate) fn add(&self, state: &mut State, time: u64, value: &Value<'_>) {
        if self.argument.is_some() && *value == Value::Null {
            return;
        }
        match state {
            State::Count(count) => *count += 1,
            State::Edge(kept) => {
                let mut writer = Writer::default();
                writer.value(value);
                if writer.0.len() <= KEPT_MAX {
                    self.keep(kept, time, writer.0.into());
                }
            }
            State::Distinct(distinct) => distinct.add(value),
            State::Sum { .. } | State::Moments { .. } | State::Extreme(_) | State::Span(_) | State::Quantile(_) => {
                if let Some(number) = value.as_number() {
                    self.add_number(state, time, number);
                }
            }
        }
    }

    fn add_number(&self, state: &mut State, time: u64, number: f64) {
        match state {
            State::Sum { count, sum, lost } => {
                *count += 1;
                add_exactly(sum, lost, number);
            }
            State::Moments { count, mean, squares } => {
                *count += 1;
                let before = number - *mean;
                *mean += before / from_u64(*count);
                *squares += before * (number - *mean);
            }
            State::Extreme(kept) => *kept = Some(kept.map_or(number, |kept| self.extreme(kept, number))),
            State::Span(span) => {
                let point = Point { time, value: number };
                *span = Some(match *span {
                    None => (point, point),
                    Some((first, last)) => {
                        (if time < first.time { point } else { first }, if time >= last.time { point } else { last })
                    }
                });
            }
            State::Quantile(quantile) => quantile.add(number),
            State::Count(_) | State::Edge(_) | State::Distinct(_) => {}
        }
    }

    /// Takes over the state of another window of the same group, whose messages came later or at other times.
    pub(crate) fn join(&self, state: &mut State, other: State) {
        match (state, other) {
            (State::Count(count), State::Count(other)) => *count += other,
            (State::Sum { count, sum, lost }, State::Sum { count: others, sum: other, lost: rest }) => {
                *count += others;
                add_exactly(sum, lost, other);
                *lost += rest;
            }
            (State::Moments { count, mean, squares }, State::Moments { count: others, mean: other, squares: more }) => {
                let (own, all) = (from_u64(*count), from_u64(*count + others));
                if others > 0 {
                    let apart = other - *mean;
                    *mean += apart * from_u64(others) / all;
                    *squares += more + apart * apart * own * from_u64(others) / all;
                    *count += others;
                }
            }
            (State::Extreme(kept), State::Extreme(Some(other))) => {
                *kept = Some(kept.map_or(other, |kept| self.extreme(kept, other)));
            }
            (State::Edge(kept), State::Edge(Some((time, value)))) => self.keep(kept, time, value),
            (State::Span(span), State::Span(Some((first, last)))) => {
                let (begin, end) = span.unwrap_or((first, last));
                *span = Some((
                    if first.time < begin.time { first } else { begin },
                    if last.time >= end.time { last } else { end },
                ));
            }
            (State::Quantile(quantile), State::Quantile(other)) => quantile.join(other),
            (State::Distinct(distinct), State::Distinct(other)) => distinct.join(&other),
            _ => {}
        }
    }

    fn extreme(&self, one: f64, two: f64) -> f64 {
        if self.kind == Kind::Min { one.min(two) } else { one.max(two) }
    }

    fn keep(&self, kept: &mut Option<(u64, Box<[u8]>)>, time: u64, value: Box<[u8]>) {
        let replaces =
            kept.as_ref().is_none_or(|(old, _)| if self.kind == Kind::First { time < *old } else { time >= *old });
        if replaces {
            *kept = Some((time, value));
        }
    }

    /// The aggregate's value when the window closes; [`Value::Null`] where no message had a value.
    pub(crate) fn result<'a>(&self, state: &'a State, extent: Extent) -> Value<'a> {
        match state {
            State::Count(count) if self.kind == Kind::Rate => {
                // Between messages there is one gap less than there are messages.
                let count = if extent.by_messages { count.saturating_sub(1) } else { *count };
                Value::number(from_u64(count) * 1000.0 / from_u64(extent.length))
            }
            State::Count(count) => Value::count(*count),
            State::Sum { count: 0, .. } | State::Moments { count: 0 | 1, .. } | State::Span(None) => Value::Null,
            State::Sum { count, sum, lost } if self.kind == Kind::Mean => {
                Value::number((sum + lost) / from_u64(*count))
            }
            State::Sum { sum, lost, .. } => Value::number(sum + lost),
            State::Moments { count, squares, .. } => Value::number((squares / from_u64(count - 1)).max(0.0).sqrt()),
            State::Extreme(kept) => kept.map_or(Value::Null, Value::number),
            State::Edge(kept) => {
                let value = kept.as_ref().and_then(|(_, bytes)| Reader(bytes).value());
                value.unwrap_or(Value::Null)
            }
            State::Span(Some((first, last))) if self.kind == Kind::Rate => {
                Value::number((last.value - first.value) * 1000.0 / from_u64(last.time - first.time))
            }
            State::Span(Some((first, last))) => Value::number(last.value - first.value),
            State::Quantile(quantile) => quantile.result(self.parameter).map_or(Value::Null, Value::number),
            State::Distinct(distinct) => Value::count(distinct.result()),
        }
    }

    pub(crate) fn read(&self, reader: &mut Reader<'_>) -> Option<State> {
        let mut state = self.start();
        match &mut state {
            State::Count(count) => *count = reader.count()?,
            State::Sum { count, sum, lost } => (*count, *sum, *lost) = (reader.count()?, reader.f64()?, reader.f64()?),
            State::Moments { count, mean, squares } => {
                (*count, *mean, *squares) = (reader.count()?, reader.f64()?, reader.f64()?);
            }
            State::Extreme(kept) => {
                if reader.u8()? == 1 {
                    *kept = Some(reader.f64()?);
                }
            }
            State::Edge(kept) => {
                if reader.u8()? == 1 {
                    *kept = Some((reader.count()?, reader.bytes()?.into()));
                }
            }
            State::Span(span) => {
                if reader.u8()? == 1 {
                    let first = Point { time: reader.count()?, value: reader.f64()? };
                    let last = Point { time: reader.count()?, value: reader.f64()? };
                    if last.time < first.time {
                        return None;
                    }
                    *span = Some((first, last));
                }
            }
            State::Quantile(quantile) => *quantile = Quantile::read(reader)?,
            State::Distinct(distinct) => *distinct = Distinct::read(reader)?,
        }
        Some(state)
    }
}

/// Adds a number and keeps the rounding error. A sum beyond all numbers stays there and gives nothing.
fn add_exactly(sum: &mut f64, lost: &mut f64, number: f64) {
    let total = *sum + number;
    if !total.is_finite() {
        *sum = if total > 0.0 { f64::MAX } else { f64::MIN };
        return;
    }
    *lost += if sum.abs() >= number.abs() { (*sum - total) + number } else { (number - total) + *sum };
    *sum = total;
}

impl State {
    /// Bytes beyond the state itself.
    pub(crate) fn heap(&self) -> usize {
        match self {
            Self::Edge(Some((_, value))) => value.len(),
            Self::Quantile(quantile) => quantile.heap(),
            Self::Distinct(distinct) => distinct.heap(),
            Self::Edge(None)
            | Self::Count(_)
            | Self::Sum { .. }
            | Self::Moments { .. }
            | Self::Extreme(_)
            | Self::Span(_) => 0,
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Count(count) => writer.u64(*count),
            Self::Sum { count, sum: one, lost: two } | Self::Moments { count, mean: one, squares: two } => {
                writer.u64(*count);
                writer.f64(*one);
                writer.f64(*two);
            }
            Self::Extreme(kept) => {
                writer.u8(u8::from(kept.is_some()));
                if let Some(kept) = kept {
                    writer.f64(*kept);
                }
            }
            Self::Edge(kept) => {
                writer.u8(u8::from(kept.is_some()));
                if let Some((time, value)) = kept {
                    writer.u64(*time);
                    writer.bytes(value);
                }
            }
            Self::Span(span) => {
                writer.u8(u8::from(span.is_some()));
                for point in span.iter().flat_map(|(first, last)| [first, last]) {
                    writer.u64(point.time);
                    writer.f64(point.value);
                }
            }
            Self::Quantile(quantile) => quantile.write(writer),
            Self::Distinct(distinct) => distinct.write(writer),
        }
    }
}

/// A number within a text, for values that are compared as bytes.
pub(crate) fn plain<'a>(value: &Value<'a>) -> Cow<'a, [u8]> {
    let mut writer = Writer::default();
    writer.value(value);
    Cow::Owned(writer.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXTENT: Extent = Extent { length: 10_000, by_messages: false };

    fn aggregate(kind: Kind) -> Aggregate {
        Aggregate { kind, argument: Some(Expression::Null), parameter: 50.0 }
    }

    fn fed(aggregate: &Aggregate, values: &[(u64, f64)]) -> State {
        let mut state = aggregate.start();
        for &(time, value) in values {
            aggregate.add(&mut state, time, &Value::Number(value));
        }
        state
    }

    fn result(kind: Kind, values: &[(u64, f64)]) -> Value<'static> {
        let aggregate = aggregate(kind);
        let state = fed(&aggregate, values);
        aggregate.result(&state, EXTENT).as_number().map_or(Value::Null, Value::Number)
    }

    /// DP-02
    #[test]
    fn aggregates_compute_what_their_names_say() {
        let values = [(0, 2.0), (2_000, 4.0), (1_000, 9.0)];
        for (kind, wanted) in [
            (Kind::Count, 3.0),
            (Kind::Sum, 15.0),
            (Kind::Mean, 5.0),
            (Kind::Min, 2.0),
            (Kind::Max, 9.0),
            (Kind::First, 2.0),
            (Kind::Last, 4.0),
            (Kind::Stddev, 13.0_f64.sqrt()),
            (Kind::Percentile, 4.0),
            (Kind::Distinct, 3.0),
            (Kind::Rate, 1.0),
            (Kind::Delta, 2.0),
        ] {
            assert_eq!(result(kind, &values), Value::Number(wanted), "{kind:?}");
        }
    }

    #[test]
    fn nothing_gives_nothing() {
        for (_, kind, ..) in AGGREGATES {
            let wanted = if matches!(kind, Kind::Count | Kind::Distinct) { Value::Number(0.0) } else { Value::Null };
            assert_eq!(result(kind, &[]), wanted, "{kind:?}");
        }
        let messages = Aggregate { kind: Kind::Rate, argument: None, parameter: 0.0 };
        let mut state = messages.start();
        (0..20).for_each(|time| messages.add(&mut state, time, &Value::Null));
        assert_eq!(messages.result(&state, EXTENT), Value::Number(2.0));
        assert_eq!(messages.result(&state, Extent { length: 0, by_messages: true }), Value::Null);
    }

    #[test]
    fn a_sum_keeps_what_a_plain_one_loses() {
        assert_eq!(result(Kind::Sum, &[(0, 1e100), (1, 1.0), (2, -1e100)]), Value::Number(1.0));
    }

    fn near(one: &Value<'_>, two: &Value<'_>) -> bool {
        match (one.as_number(), two.as_number()) {
            (Some(one), Some(two)) => (one - two).abs() <= 1e-6 * one.abs().max(two.abs()).max(1.0),
            (None, None) => one == two,
            _ => false,
        }
    }

    proptest! {
        /// DP-02
        #[test]
        fn two_halves_that_are_joined_are_the_whole(values in prop::collection::vec((0_u64..1_000_000, -1e3..1e3), 0..40), cut in any::<prop::sample::Index>()) {
            // Times differ, so that what is first and last does not depend on the order of coming.
            let values: Vec<(u64, f64)> = values.iter().enumerate().map(|(at, &(time, value))| (time * 64 + u64::try_from(at).unwrap(), value)).collect();
            let cut = cut.index(values.len() + 1);
            for (_, kind, ..) in AGGREGATES {
                let aggregate = aggregate(kind);
                let whole = fed(&aggregate, &values);
                let mut joined = fed(&aggregate, &values[..cut]);
                aggregate.join(&mut joined, fed(&aggregate, &values[cut..]));
                let (whole, joined) = (aggregate.result(&whole, EXTENT), aggregate.result(&joined, EXTENT));
                prop_assert!(near(&whole, &joined), "{kind:?} {whole:?} {joined:?}");
            }
        }

        #[test]
        fn a_state_that_is_written_reads_as_the_same(values in prop::collection::vec((0_u64..1 << 53, -1e30..1e30), 0..400)) {
            for (_, kind, ..) in AGGREGATES {
                let aggregate = aggregate(kind);
                let state = fed(&aggregate, &values);
                let mut writer = Writer::default();
                state.write(&mut writer);
                let mut reader = Reader(&writer.0);
                prop_assert_eq!(aggregate.read(&mut reader), Some(state));
                prop_assert!(reader.0.is_empty());
            }
        }
    }
}
