//! Payloads as JSON.

use serde::Serialize;

use crate::births::Known;
use crate::error::PayloadError;
use crate::message::{
    DataSet, Element, ElementValue, MetaData, Metric, MetricValue, Parameter, ParameterValue, Payload, Property,
    PropertySet, PropertyValue, Template,
};
use crate::topic::Topic;
use crate::value::{Elements, Scalar, elements, int, long, name};
use crate::weight::DEPTH_MAX;

/// Largest JSON of a payload in bytes: an alias of two bytes stands for a name of any length.
pub(crate) const JSON_MAX: usize = 4 << 20;

/// Writes one document.
pub(crate) struct Writer {
    out: Vec<u8>,
    depth: usize,
}

impl Writer {
    pub(crate) const fn new() -> Self {
        Self { out: Vec::new(), depth: 0 }
    }

    fn plain(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Texts are escaped; numbers that JSON does not have are `null`.
    fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut self.out, value);
    }

    fn scalar(&mut self, scalar: Scalar<'_>) {
        match scalar {
            Scalar::Null => self.plain("null"),
            Scalar::Signed(number) => self.value(&number),
            Scalar::Unsigned(number) => self.value(&number),
            Scalar::Float(number) => self.value(&number),
            Scalar::Double(number) => self.value(&number),
            Scalar::Boolean(flag) => self.value(&flag),
            Scalar::Text(text) => self.value(text),
        }
    }

    /// A name within an object that has begun with `{`.
    fn key(&mut self, key: &str) {
        if self.out.last() != Some(&b'{') {
            self.plain(",");
        }
        self.value(key);
        self.plain(":");
    }

    fn member(&mut self, key: &str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.key(key);
            self.value(value);
        }
    }

    fn list<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), PayloadError>,
    ) -> Result<(), PayloadError> {
        self.plain("[");
        for (number, item) in items.iter().enumerate() {
            if number > 0 {
                self.plain(",");
            }
            write(self, item)?;
            if self.out.len() > JSON_MAX {
                return Err(PayloadError::TooLarge(JSON_MAX));
            }
        }
        self.plain("]");
        Ok(())
    }

    /// Writes a deeper level: templates and property sets may lie in each other.
    fn deeper(&mut self, write: impl FnOnce(&mut Self) -> Result<(), PayloadError>) -> Result<(), PayloadError> {
        if self.depth == DEPTH_MAX {
            return Err(PayloadError::TooDeep(DEPTH_MAX));
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// The whole payload; `known` has the metrics as the births describe them, in the payload's order.
    pub(crate) fn payload(
        mut self,
        topic: &Topic<'_>,
        payload: &Payload,
        known: &[Option<Known>],
    ) -> Result<Vec<u8>, PayloadError> {
        self.plain("{");
        self.member("type", Some(topic.kind.name()));
        self.member("group", Some(topic.group));
        self.member("node", Some(topic.node));
        self.member("device", topic.device);
        self.member("timestamp", payload.timestamp.as_ref());
        self.member("seq", payload.seq.as_ref());
        self.member("uuid", payload.uuid.as_deref());
        self.key("values");
        self.values(&payload.metrics, known)?;
        self.key("metrics");
        let metrics: Vec<_> = payload.metrics.iter().zip(known).collect();
        self.list(&metrics, |writer, (metric, known)| writer.metric(metric, known.as_ref()))?;
        self.plain("}");
        Ok(self.out)
    }

    /// Values by names. Of several with one name the last counts: a sender that was offline sends old ones first.
    fn values(&mut self, metrics: &[Metric], known: &[Option<Known>]) -> Result<(), PayloadError> {
        let mut last = std::collections::BTreeMap::new();
        for (number, known) in known.iter().enumerate() {
            if let Some(known) = known {
                last.insert(&*known.name, number);
            }
        }
        self.plain("{");
        for (number, (metric, known)) in metrics.iter().zip(known).enumerate() {
            let Some(known) = known.as_ref().filter(|known| last.get(&*known.name) == Some(&number)) else { continue };
            self.key(&known.name);
            self.metric_value(metric, known.datatype)?;
            if self.out.len() > JSON_MAX {
                return Err(PayloadError::TooLarge(JSON_MAX));
            }
        }
        self.plain("}");
        Ok(())
    }

    fn metric(&mut self, metric: &Metric, known: Option<&Known>) -> Result<(), PayloadError> {
        let datatype = known.map_or_else(|| metric.datatype.unwrap_or(0), |known| known.datatype);
        self.plain("{");
        self.key("name");
        self.value(&known.map(|known| &*known.name).or(metric.name.as_deref()));
        self.member("alias", metric.alias.as_ref());
        self.member("timestamp", metric.timestamp.as_ref());
        self.member("dataType", Some(name(datatype)));
        self.member("isHistorical", metric.is_historical.filter(|flag| *flag).as_ref());
        self.member("isTransient", metric.is_transient.filter(|flag| *flag).as_ref());
        if let Some(metadata) = &metric.metadata {
            self.key("metadata");
            self.metadata(metadata);
        }
        if let Some(properties) = &metric.properties {
            self.key("properties");
            self.properties(properties)?;
        }
        self.key("value");
        self.metric_value(metric, datatype)?;
        self.plain("}");
        Ok(())
    }

    fn metric_value(&mut self, metric: &Metric, datatype: u32) -> Result<(), PayloadError> {
        let Some(value) = metric.value.as_ref().filter(|_| metric.is_null != Some(true)) else {
            self.plain("null");
            return Ok(());
        };
        match value {
            MetricValue::Int(value) => self.scalar(int(*value, datatype)),
            MetricValue::Long(value) => self.scalar(long(*value, datatype)),
            MetricValue::Float(value) => self.value(value),
            MetricValue::Double(value) => self.value(value),
            MetricValue::Boolean(value) => self.value(value),
            MetricValue::String(value) => self.value(value),
            MetricValue::Bytes(value) => match elements(value, datatype) {
                Elements::Bytes(text) => self.value(&text),
                Elements::Numbers(numbers) => {
                    return self.list(&numbers, |writer, number| {
                        writer.scalar(*number);
                        Ok(())
                    });
                }
            },
            MetricValue::DataSet(data) => return self.data_set(data),
            MetricValue::Template(template) => return self.template(template),
        }
        Ok(())
    }

    fn metadata(&mut self, data: &MetaData) {
        self.plain("{");
        self.member("isMultiPart", data.is_multi_part.as_ref());
        self.member("contentType", data.content_type.as_deref());
        self.member("size", data.size.as_ref());
        self.member("seq", data.seq.as_ref());
        self.member("fileName", data.file_name.as_deref());
        self.member("fileType", data.file_type.as_deref());
        self.member("md5", data.md5.as_deref());
        self.member("description", data.description.as_deref());
        self.plain("}");
    }

    fn properties(&mut self, set: &PropertySet) -> Result<(), PayloadError> {
        self.deeper(|writer| {
            writer.plain("{");
            for (key, property) in set.keys.iter().zip(&set.values) {
                writer.key(key);
                writer.property(property)?;
                if writer.out.len() > JSON_MAX {
                    return Err(PayloadError::TooLarge(JSON_MAX));
                }
            }
            writer.plain("}");
            Ok(())
        })
    }

    fn property(&mut self, property: &Property) -> Result<(), PayloadError> {
        let kind = property.kind.unwrap_or(0);
        match property.value.as_ref().filter(|_| property.is_null != Some(true)) {
            None => self.scalar(Scalar::Null),
            Some(PropertyValue::Int(value)) => self.scalar(int(*value, kind)),
            Some(PropertyValue::Long(value)) => self.scalar(long(*value, kind)),
            Some(PropertyValue::Float(value)) => self.value(value),
            Some(PropertyValue::Double(value)) => self.value(value),
            Some(PropertyValue::Boolean(value)) => self.value(value),
            Some(PropertyValue::String(value)) => self.value(value),
            Some(PropertyValue::Set(set)) => return self.properties(set),
            Some(PropertyValue::Sets(sets)) => return self.list(&sets.sets, Self::properties),
        }
        Ok(())
    }

    fn data_set(&mut self, data: &DataSet) -> Result<(), PayloadError> {
        let kinds: Vec<&str> = data.types.iter().map(|kind| name(*kind)).collect();
        self.plain("{");
        self.member("columns", Some(&data.columns));
        self.member("types", Some(&kinds));
        self.key("rows");
        self.list(&data.rows, |writer, row| {
            let elements: Vec<_> = row.elements.iter().enumerate().collect();
            writer.list(&elements, |writer, (column, element)| {
                writer.scalar(element_value(element, data.types.get(*column).copied().unwrap_or(0)));
                Ok(())
            })
        })?;
        self.plain("}");
        Ok(())
    }

    fn template(&mut self, template: &Template) -> Result<(), PayloadError> {
        self.deeper(|writer| {
            writer.plain("{");
            writer.member("version", template.version.as_deref());
            writer.member("reference", template.reference.as_deref());
            writer.member("isDefinition", template.is_definition.as_ref());
            writer.key("metrics");
            // Members of a template have names, never aliases.
            writer.list(&template.metrics, |writer, metric| writer.metric(metric, None))?;
            writer.key("parameters");
            writer.list(&template.parameters, |writer, parameter| {
                writer.parameter(parameter);
                Ok(())
            })?;
            writer.plain("}");
            Ok(())
        })
    }

    fn parameter(&mut self, parameter: &Parameter) {
        let kind = parameter.kind.unwrap_or(0);
        self.plain("{");
        self.member("name", parameter.name.as_deref());
        self.member("type", Some(name(kind)));
        self.key("value");
        match &parameter.value {
            None => self.scalar(Scalar::Null),
            Some(ParameterValue::Int(value)) => self.scalar(int(*value, kind)),
            Some(ParameterValue::Long(value)) => self.scalar(long(*value, kind)),
            Some(ParameterValue::Float(value)) => self.value(value),
            Some(ParameterValue::Double(value)) => self.value(value),
            Some(ParameterValue::Boolean(value)) => self.value(value),
            Some(ParameterValue::String(value)) => self.value(value),
        }
        self.plain("}");
    }
}

fn element_value(element: &Element, kind: u32) -> Scalar<'_> {
    match &element.value {
        None => Scalar::Null,
        Some(ElementValue::Int(value)) => int(*value, kind),
        Some(ElementValue::Long(value)) => long(*value, kind),
        Some(ElementValue::Float(value)) => Scalar::Float(*value),
        Some(ElementValue::Double(value)) => Scalar::Double(*value),
        Some(ElementValue::Boolean(value)) => Scalar::Boolean(*value),
        Some(ElementValue::String(value)) => Scalar::Text(value),
    }
}
