//! How much a payload will take in memory, before it takes it: two bytes of it can be a metric of a hundred.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::error::PayloadError;

/// Most metrics, properties, rows, elements and texts of a payload together: some 15 MB in memory.
pub(crate) const PARTS_MAX: usize = 100_000;
/// Most templates and property sets in each other.
pub(crate) const DEPTH_MAX: usize = 16;

/// Kind of a message, by the messages that its fields hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Payload,
    Metric,
    PropertySet,
    Property,
    PropertySets,
    DataSet,
    Row,
    Template,
    /// Nothing within it grows.
    Leaf,
}

impl Shape {
    /// The shape of the field with this number.
    const fn field(self, tag: u32) -> Self {
        match (self, tag) {
            (Self::Payload | Self::Template, 2) => Self::Metric,
            (Self::Metric | Self::Property, 9) | (Self::PropertySets, 1) => Self::PropertySet,
            (Self::Metric, 17) => Self::DataSet,
            (Self::Metric, 18) => Self::Template,
            (Self::PropertySet, 2) => Self::Property,
            (Self::Property, 10) => Self::PropertySets,
            (Self::DataSet, 4) => Self::Row,
            _ => Self::Leaf,
        }
    }
}

/// Counts the parts of a payload; refuses one with too many.
pub(crate) fn check(bytes: &[u8]) -> Result<(), PayloadError> {
    let malformed = |error: DecodeError| PayloadError::Malformed(error.to_string());
    let mut parts = 0;
    // Messages that have not been looked into, with their shape and depth: no recursion, whatever a sender has nested.
    let mut open = vec![(bytes, Shape::Payload, 0)];
    while let Some((mut bytes, shape, depth)) = open.pop() {
        if depth > 2 * DEPTH_MAX {
            return Err(PayloadError::TooDeep(DEPTH_MAX));
        }
        while !bytes.is_empty() {
            let (tag, wire) = decode_key(&mut bytes).map_err(malformed)?;
            if wire != WireType::LengthDelimited {
                skip_field(wire, tag, &mut bytes, DecodeContext::default()).map_err(malformed)?;
                continue;
            }
            parts += 1;
            if parts > PARTS_MAX {
                return Err(PayloadError::TooManyParts(PARTS_MAX));
            }
            let length = decode_varint(&mut bytes).map_err(malformed)?;
            let inside = usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length));
            let Some((inside, rest)) = inside else {
                return Err(PayloadError::Malformed(format!("{length} bytes announced, {} there", bytes.len())));
            };
            bytes = rest;
            let field = shape.field(tag);
            if field != Shape::Leaf || shape == Shape::Row {
                open.push((inside, field, depth + 1));
            }
        }
    }
    Ok(())
}
