//! Payloads as Protocol Buffers has them: fields and their numbers are those of the specification (chapter 6).

use prost::{Message, Oneof};

use crate::error::PayloadError;
use crate::weight;

/// A payload, decoded.
#[derive(Clone, PartialEq, Message)]
pub struct Payload {
    /// When it was sent, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "1")]
    pub timestamp: Option<u64>,
    /// Values, or in a birth everything that there is.
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
    /// Number of the message since the birth, 0 to 255.
    #[prost(uint64, optional, tag = "3")]
    pub seq: Option<u64>,
    /// Schema of `body`.
    #[prost(string, optional, tag = "4")]
    pub uuid: Option<String>,
    /// Further data of the sender.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub body: Option<Vec<u8>>,
}

impl Payload {
    /// Reads a payload. Its size in memory is bounded by its parts, which are counted first.
    pub fn read(bytes: &[u8]) -> Result<Self, PayloadError> {
        weight::check(bytes)?;
        Self::decode(bytes).map_err(|error| PayloadError::Malformed(error.to_string()))
    }
}

/// A metric with its value.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// Its name; with an alias only births have it.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// A number that stands for the name, the same for no other metric of the edge node.
    #[prost(uint64, optional, tag = "2")]
    pub alias: Option<u64>,
    /// When the value was taken, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "3")]
    pub timestamp: Option<u64>,
    /// Number of the value's type; outside of births it may be left away.
    #[prost(uint32, optional, tag = "4")]
    pub datatype: Option<u32>,
    /// The value is not the latest one.
    #[prost(bool, optional, tag = "5")]
    pub is_historical: Option<bool>,
    /// The value is not for an archive.
    #[prost(bool, optional, tag = "6")]
    pub is_transient: Option<bool>,
    /// There is no value.
    #[prost(bool, optional, tag = "7")]
    pub is_null: Option<bool>,
    #[prost(message, optional, boxed, tag = "8")]
    pub(crate) metadata: Option<Box<MetaData>>,
    #[prost(message, optional, boxed, tag = "9")]
    pub(crate) properties: Option<Box<PropertySet>>,
    #[prost(oneof = "MetricValue", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18")]
    pub(crate) value: Option<MetricValue>,
}

impl Metric {
    /// A metric with a truth value.
    pub fn boolean(name: &str, value: bool) -> Self {
        let datatype = Some(crate::value::BOOLEAN);
        Self { name: Some(name.to_owned()), datatype, value: Some(MetricValue::Boolean(value)), ..Self::default() }
    }
}

/// The value of a metric.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum MetricValue {
    #[prost(uint32, tag = "10")]
    Int(u32),
    #[prost(uint64, tag = "11")]
    Long(u64),
    #[prost(float, tag = "12")]
    Float(f32),
    #[prost(double, tag = "13")]
    Double(f64),
    #[prost(bool, tag = "14")]
    Boolean(bool),
    #[prost(string, tag = "15")]
    String(String),
    #[prost(bytes, tag = "16")]
    Bytes(Vec<u8>),
    #[prost(message, tag = "17")]
    DataSet(Box<DataSet>),
    #[prost(message, tag = "18")]
    Template(Box<Template>),
}

/// Description of a value that is a file or a part of one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetaData {
    #[prost(bool, optional, tag = "1")]
    pub(crate) is_multi_part: Option<bool>,
    #[prost(string, optional, tag = "2")]
    pub(crate) content_type: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) size: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) seq: Option<u64>,
    #[prost(string, optional, tag = "5")]
    pub(crate) file_name: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(crate) file_type: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub(crate) md5: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub(crate) description: Option<String>,
}

/// Values beside a metric's own: the first key goes with the first value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PropertySet {
    #[prost(string, repeated, tag = "1")]
    pub(crate) keys: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) values: Vec<Property>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PropertySets {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sets: Vec<PropertySet>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Property {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) kind: Option<u32>,
    #[prost(bool, optional, tag = "2")]
    pub(crate) is_null: Option<bool>,
    #[prost(oneof = "PropertyValue", tags = "3, 4, 5, 6, 7, 8, 9, 10")]
    pub(crate) value: Option<PropertyValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum PropertyValue {
    #[prost(uint32, tag = "3")]
    Int(u32),
    #[prost(uint64, tag = "4")]
    Long(u64),
    #[prost(float, tag = "5")]
    Float(f32),
    #[prost(double, tag = "6")]
    Double(f64),
    #[prost(bool, tag = "7")]
    Boolean(bool),
    #[prost(string, tag = "8")]
    String(String),
    #[prost(message, tag = "9")]
    Set(Box<PropertySet>),
    #[prost(message, tag = "10")]
    Sets(Box<PropertySets>),
}

/// A table.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DataSet {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) column_count: Option<u64>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) columns: Vec<String>,
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    pub(crate) types: Vec<u32>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Row {
    #[prost(message, repeated, tag = "1")]
    pub(crate) elements: Vec<Element>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Element {
    #[prost(oneof = "ElementValue", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) value: Option<ElementValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ElementValue {
    #[prost(uint32, tag = "1")]
    Int(u32),
    #[prost(uint64, tag = "2")]
    Long(u64),
    #[prost(float, tag = "3")]
    Float(f32),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(bool, tag = "5")]
    Boolean(bool),
    #[prost(string, tag = "6")]
    String(String),
}

/// Metrics that belong together, or the definition of such a group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Template {
    #[prost(string, optional, tag = "1")]
    pub(crate) version: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) metrics: Vec<Metric>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) parameters: Vec<Parameter>,
    #[prost(string, optional, tag = "4")]
    pub(crate) reference: Option<String>,
    #[prost(bool, optional, tag = "5")]
    pub(crate) is_definition: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Parameter {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) kind: Option<u32>,
    #[prost(oneof = "ParameterValue", tags = "3, 4, 5, 6, 7, 8")]
    pub(crate) value: Option<ParameterValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ParameterValue {
    #[prost(uint32, tag = "3")]
    Int(u32),
    #[prost(uint64, tag = "4")]
    Long(u64),
    #[prost(float, tag = "5")]
    Float(f32),
    #[prost(double, tag = "6")]
    Double(f64),
    #[prost(bool, tag = "7")]
    Boolean(bool),
    #[prost(string, tag = "8")]
    String(String),
}
