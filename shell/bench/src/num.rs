//! Conversions between the number types of counts, times and figures, each in one place with its limits stated.

/// A count as a real number. Exact below 2^53; above that a figure is rounded anyway.
#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
pub(crate) const fn real(count: u64) -> f64 {
    count as f64
}

/// A length as a count.
pub(crate) const fn count(length: usize) -> u64 {
    length as u64
}

/// A count as an index. Nothing this program counts in memory is beyond the address space.
pub(crate) fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A non-negative real number as a count; what is below zero or no number becomes 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is what is wanted")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

/// Seconds as nanoseconds.
pub(crate) fn nanos(seconds: f64) -> u64 {
    whole((seconds * 1e9).round())
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    real(nanos) / 1e9
}

/// `part / whole`, and 0 where there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Seconds and nanoseconds of a system clock as nanoseconds.
pub(crate) fn nanos_of(seconds: i64, nanos: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(nanos).unwrap_or(0))
}
