//! A record of a rule's log as bytes: version, number, what is released, the outputs (as PUBLISH packets), and the whole state or its changes.

use bytes::{Bytes, BytesMut};
use sedge_mqtt::{Decoder, Packet, PacketId, Publish, QoS, TopicName, Version, encode};

use super::Counted;
use crate::codec::{Reader, Writer};
use crate::input::Output;
use crate::machine::Change;

/// Version of the format.
const VERSION: u8 = 1;
/// Largest output that is read back.
const OUTPUT_BYTES_MAX: u32 = 268_435_460;

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log of the rule has a record that cannot be read")]
pub struct RecordError;

/// See the module.
#[derive(Debug)]
pub(super) struct Record {
    /// Ascending from 1 on.
    pub(super) number: u64,
    /// Outputs below this number have arrived.
    pub(super) released: u64,
    /// Outputs that are new, or, in a whole record, all that are not released.
    pub(super) outputs: Vec<Output>,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Whole { state: Vec<u8>, counted: Vec<Counted> },
    Changes { changes: Vec<Change>, inputs: Vec<Counted> },
}

impl Record {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(VERSION);
        writer.u64(self.number);
        writer.u64(self.released);
        writer.len(self.outputs.len());
        for output in &self.outputs {
            write_output(&mut writer, output);
        }
        let counted = match &self.body {
            Body::Whole { state, counted } => {
                writer.u8(1);
                writer.bytes(state);
                counted
            }
            Body::Changes { changes, inputs } => {
                writer.u8(0);
                writer.len(changes.len());
                for change in changes {
                    writer.bytes(&change.key);
                    writer.u8(u8::from(change.record.is_some()));
                    writer.bytes(change.record.as_deref().unwrap_or_default());
                }
                inputs
            }
        };
        writer.len(counted.len());
        for input in counted {
            writer.u64(u64::from(input.id.get()));
            writer.u64(input.digest);
        }
        writer.0
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader(bytes);
        let record = read(&mut reader).filter(|_| reader.0.is_empty());
        record.ok_or(RecordError)
    }
}

fn read(reader: &mut Reader<'_>) -> Option<Record> {
    if reader.u8()? != VERSION {
        return None;
    }
    let (number, released) = (reader.count()?, reader.count()?);
    let count = reader.len(8)?;
    let outputs = (0..count).map(|_| read_output(reader)).collect::<Option<_>>()?;
    let body = if reader.u8()? == 1 {
        let state = reader.bytes()?.to_vec();
        Body::Whole { state, counted: read_counted(reader)? }
    } else {
        let count = reader.len(9)?;
        let change = |reader: &mut Reader<'_>| {
            let (key, is) = (reader.bytes()?.to_vec(), reader.u8()? == 1);
            let record = reader.bytes()?.to_vec();
            Some(Change { key, record: is.then_some(record) })
        };
        let changes = (0..count).map(|_| change(reader)).collect::<Option<_>>()?;
        Body::Changes { changes, inputs: read_counted(reader)? }
    };
    Some(Record { number, released, outputs, body })
}

fn read_counted(reader: &mut Reader<'_>) -> Option<Vec<Counted>> {
    let count = reader.len(16)?;
    let counted = |reader: &mut Reader<'_>| {
        let id = u16::try_from(reader.u64()?).ok().and_then(PacketId::new)?;
        Some(Counted { id, digest: reader.u64()? })
    };
    (0..count).map(|_| counted(reader)).collect()
}

fn write_output(writer: &mut Writer, output: &Output) {
    let publish = Publish {
        dup: false,
        qos: output.qos,
        retain: output.retain,
        topic: Some(output.topic.clone().unwrap_or_else(|| output.source.clone())),
        packet_id: if output.qos == QoS::AtMostOnce { None } else { Some(PacketId::MIN) },
        payload: output.payload.clone(),
        properties: Some(Box::new(output.properties.clone())),
    };
    let mut bytes = BytesMut::new();
    encode(&Packet::Publish(publish), Version::V5, &mut bytes);
    writer.u8(u8::from(output.topic.is_some()));
    writer.bytes(output.source.as_bytes());
    writer.bytes(&bytes);
}

fn read_output(reader: &mut Reader<'_>) -> Option<Output> {
    let (has_topic, source, packet) = (reader.u8()? == 1, reader.text()?, reader.bytes()?);
    let mut decoder = Decoder::server(OUTPUT_BYTES_MAX);
    decoder.set_version(Version::V5);
    decoder.feed(Bytes::copy_from_slice(packet));
    let Ok(Some(Packet::Publish(publish))) = decoder.next() else { return None };
    Some(Output {
        topic: publish.topic.filter(|_| has_topic),
        source: TopicName::new(source).ok()?,
        payload: publish.payload,
        qos: publish.qos,
        retain: publish.retain,
        properties: publish.properties.map(|properties| *properties).unwrap_or_default(),
    })
}
