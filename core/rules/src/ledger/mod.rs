//! A rule that runs exactly once, whoever runs it: what it has taken, what it has become, and what it still has to put out.
//!
//! The owner keeps a log of [`Ledger::seal`]ed records at a place that outlives it. A record says in one piece which inputs it has counted, how
//! the state has changed and what is to be put out. Only when it is safe ([`Ledger::sealed`]) are the inputs acknowledged and the outputs
//! published, with the packet identifiers that the record gives them, and only when the next record says that they have arrived are they
//! released. Whoever goes on with the log therefore repeats an output with the same identifier, or not at all (MQTT 5.0 section 4.3.3), and
//! knows an input again that comes once more.

mod record;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{StableHash, Timestamp, mix};
use sedge_mqtt::{PacketId, Publish, QoS};

pub use self::record::RecordError;
use self::record::{Body, Record};
use crate::input::{Input, Output};
use crate::machine::Machine;
use crate::{Counters, Rule, Transform};

/// QoS 1 and 2 inputs that the broker may send before one of them is acknowledged: what it sends later it sends because it knows that.
pub const RECEIVE_MAX: u16 = 512;
/// Most outputs that are on their way at a time.
const WINDOW_MAX: usize = 256;
/// Identifiers of outputs repeat after so many: those of two windows never meet.
const IDS: u64 = 4 * 256;
/// Records after which the whole state is written again.
const RECORDS_MAX: u32 = 32;
/// Bytes of records after which the same happens, if the state is not larger itself.
const RECORDS_BYTES: usize = 256 << 10;
/// Most outputs that wait: then no input is taken.
const OUTPUTS_MAX: usize = 10_000;
/// Most bytes of outputs that wait, with the same effect.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// An input that has been counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    id: PacketId,
    digest: u64,
}

/// Instruction to the owner about an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing to do: the input is acknowledged when the next record is safe.
    Counted,
    /// Acknowledge the input: it has been counted before, or nobody waits for the acknowledgement.
    Again,
    /// The input has to come once more, to another ledger ([`Ledger::take_broken`] says why).
    Broken,
}

/// Instructions to the owner when a record is safe.
#[derive(Debug, Default)]
pub struct Safe {
    /// Inputs to acknowledge.
    pub inputs: Vec<(PacketId, QoS)>,
    /// QoS 2 outputs to release.
    pub release: Vec<PacketId>,
    /// Number of the first record that the log still needs, if the records before it are not needed any more.
    pub keep_from: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    machine: Machine,
    counted: VecDeque<Counted>,
    /// Inputs since the last record.
    fresh: Vec<(Counted, QoS)>,
    /// Outputs that have not been released, in order; the first has the number `released`.
    outputs: VecDeque<Output>,
    released: u64,
    /// Numbers of outputs that are in a safe record and may be published, and of those that have been published.
    safe: usize,
    published: usize,
    /// Identifiers of published outputs that have not arrived.
    underway: BTreeSet<PacketId>,
    /// Released QoS 2 outputs whose end the broker has not confirmed.
    ending: BTreeSet<PacketId>,
    /// How many outputs the last records have named.
    recorded: usize,
    /// Number of the next record.
    number: u64,
    since_whole: u32,
    bytes_since_whole: usize,
    /// The record that is on its way: inputs, outputs it releases, whether it is whole.
    pending: Option<Pending>,
    /// Number of the first outputs that an earlier owner of the log may have published before.
    repeats: usize,
    /// How many outputs may be on their way.
    window: usize,
    /// Bytes of the outputs' payloads.
    output_bytes: usize,
    /// Why an input has to come once more.
    broken: Option<String>,
}

#[derive(Debug)]
struct Pending {
    inputs: Vec<(PacketId, QoS)>,
    releases: usize,
    whole: bool,
}

impl Ledger {
    /// A rule that begins.
    pub fn new(rule: Arc<Rule>) -> Self {
        Self {
            machine: Machine::new(rule),
            counted: VecDeque::new(),
            fresh: Vec::new(),
            outputs: VecDeque::new(),
            released: 0,
            safe: 0,
            published: 0,
            underway: BTreeSet::new(),
            ending: BTreeSet::new(),
            recorded: 0,
            number: 1,
            // The first record is a whole one.
            since_whole: RECORDS_MAX,
            bytes_since_whole: 0,
            pending: None,
            repeats: 0,
            window: WINDOW_MAX,
            output_bytes: 0,
            broken: None,
        }
    }

    /// A rule that goes on: the records of the log in the order of their coming. State of the rule before it was changed is given up, which
    /// the second value says; what it still had to put out is not.
    pub fn replay<'a>(rule: &Arc<Rule>, log: impl Iterator<Item = &'a [u8]>) -> Result<(Self, bool), RecordError> {
        let mut ledger = Self::new(Arc::clone(rule));
        let (mut last, mut changed) = (0, false);
        for bytes in log {
            let record = Record::read(bytes)?;
            let follows = record.number == last + 1;
            let whole = matches!(record.body, Body::Whole { .. });
            if record.number <= last || !(whole || follows) {
                // A record that has come twice, or one that follows a record given up before.
                continue;
            }
            last = record.number;
            changed |= !ledger.apply(record);
        }
        ledger.output_bytes = ledger.outputs.iter().map(|output| output.payload.len()).sum();
        ledger.number = last + 1;
        ledger.recorded = ledger.outputs.len();
        ledger.safe = ledger.outputs.len();
        ledger.repeats = ledger.outputs.len().min(WINDOW_MAX);
        if last > 0 {
            let first = ledger.released.saturating_sub(WINDOW_MAX as u64);
            ledger.ending = (first..ledger.released).filter_map(id_of).collect();
        }
        Ok((ledger, changed))
    }

    /// `false`: the state is that of another rule.
    fn apply(&mut self, record: Record) -> bool {
        let released = record.released.saturating_sub(self.released);
        let rule = Arc::clone(self.machine.rule());
        let fits = match record.body {
            Body::Whole { state, counted } => {
                self.counted = counted.into();
                self.outputs.clear();
                let restored = Machine::restore(Arc::clone(&rule), &state);
                let fits = restored.is_ok();
                self.machine = restored.unwrap_or_else(|_| Machine::new(rule));
                fits
            }
            Body::Changes { changes, inputs } => {
                for input in inputs {
                    self.count(input);
                }
                let count = usize::try_from(released).unwrap_or(usize::MAX).min(self.outputs.len());
                self.outputs.drain(..count);
                changes.iter().all(|change| self.machine.apply(change).is_ok())
            }
        };
        self.released = record.released;
        self.outputs.extend(record.outputs);
        // The applied changes are in the log already: the next record leaves them out.
        self.machine.take_changes();
        fits
    }

    fn count(&mut self, input: Counted) {
        self.counted.push_back(input);
        if self.counted.len() > usize::from(RECEIVE_MAX) {
            self.counted.pop_front();
        }
    }

    /// Whether it takes inputs now, or has too much to put out.
    pub fn has_room(&self) -> bool {
        self.outputs.len() < OUTPUTS_MAX
            && self.output_bytes < OUTPUT_BYTES_MAX
            && self.fresh.len() < usize::from(RECEIVE_MAX)
    }

    /// Takes an input.
    pub fn take(&mut self, now: Timestamp, publish: &Publish) -> Taken {
        let Some(topic) = &publish.topic else { return Taken::Again };
        let input = publish.packet_id.map(|id| Counted { id, digest: digest(publish) });
        if let Some(input) = input
            && publish.dup
        {
            if self.fresh.iter().any(|(known, _)| *known == input) {
                return Taken::Counted;
            }
            if self.counted.contains(&input) {
                return Taken::Again;
            }
        }
        let (payload, properties) = (&publish.payload, publish.properties.as_deref());
        let input_of = Input { topic, payload, qos: publish.qos, retain: publish.retain, properties, client: None };
        self.machine.handle(now, &input_of);
        if let Some(why) = self.machine.take_broken() {
            self.broken = Some(why);
            return Taken::Broken;
        }
        self.collect();
        match input {
            Some(input) => {
                self.fresh.push((input, publish.qos));
                Taken::Counted
            }
            None => Taken::Again,
        }
    }

    /// Gives the rule something that runs its program.
    pub fn run_programs_by(&mut self, programs: Box<dyn Transform>) {
        self.machine.run_programs_by(programs);
    }

    /// Error of the last message from which the program made no output; each error is returned once.
    pub fn take_note(&mut self) -> Option<String> {
        self.machine.take_note()
    }

    /// Reason why an input has to come once more.
    pub fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// Takes over a birth that the broker has kept, before anything else comes.
    pub fn learn(&mut self, topic: &str, payload: &[u8]) {
        self.machine.learn(topic, payload);
    }

    /// Closes the windows that are due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.machine.handle_timeout(now);
        self.collect();
    }

    /// When [`Self::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.machine.poll_timeout()
    }

    fn collect(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            self.output_bytes += output.payload.len();
            self.outputs.push_back(output);
        }
    }

    /// The next record for the log, with its number, if there is something to say and no record is on its way. QoS 0 inputs alone say
    /// nothing that may not be lost; their outputs do.
    pub fn seal(&mut self) -> Option<Vec<u8>> {
        if self.pending.is_some() {
            return None;
        }
        // All that is published has arrived: the record says so.
        let releases = if self.underway.is_empty() { self.published } else { 0 };
        let changes = self.machine.take_changes();
        let outputs = self.outputs.len() - self.recorded;
        if self.fresh.is_empty() && releases == 0 && outputs == 0 && changes.is_empty() {
            return None;
        }
        let inputs: Vec<(Counted, QoS)> = core::mem::take(&mut self.fresh);
        for (input, _) in &inputs {
            self.count(*input);
        }
        let bytes_max = RECORDS_BYTES.max(self.machine.state_bytes());
        let whole = self.since_whole >= RECORDS_MAX || self.bytes_since_whole >= bytes_max;
        let (body, skip) = if whole {
            (Body::Whole { state: self.machine.snapshot(), counted: self.counted.iter().copied().collect() }, releases)
        } else {
            (Body::Changes { changes, inputs: inputs.iter().map(|(input, _)| *input).collect() }, self.recorded)
        };
        let outputs = self.outputs.iter().skip(skip).cloned().collect();
        let record = Record { number: self.number, released: self.released + releases as u64, outputs, body };
        let bytes = record.write();
        self.number += 1;
        self.recorded = self.outputs.len();
        (self.since_whole, self.bytes_since_whole) =
            if whole { (0, 0) } else { (self.since_whole + 1, self.bytes_since_whole + bytes.len()) };
        let inputs = inputs.into_iter().map(|(input, qos)| (input.id, qos)).collect();
        self.pending = Some(Pending { inputs, releases, whole });
        Some(bytes)
    }

    /// The record that was sealed last is safe.
    pub fn sealed(&mut self) -> Safe {
        let Some(Pending { inputs, releases, whole }) = self.pending.take() else { return Safe::default() };
        let mut release = Vec::new();
        for number in (self.released..).take(releases) {
            let Some(output) = self.outputs.pop_front() else { break };
            self.output_bytes -= output.payload.len();
            if output.qos == QoS::ExactlyOnce {
                release.extend(id_of(number));
            }
        }
        self.released += releases as u64;
        self.recorded -= releases;
        self.published -= releases;
        self.safe = self.recorded;
        self.ending.extend(release.iter().copied());
        Safe { inputs, release, keep_from: whole.then(|| self.number - 1) }
    }

    /// QoS 2 outputs that an earlier owner of the log may have released: after a second release they are gone in any case.
    pub fn released_before(&self) -> Vec<PacketId> {
        self.ending.iter().copied().collect()
    }

    /// The next output to publish.
    pub fn poll_publish(&mut self) -> Option<Publish> {
        // Identifiers are free again when the broker has confirmed the end of those before.
        if !self.ending.is_empty() || self.published >= self.window || self.published >= self.safe {
            return None;
        }
        let output = self.outputs.get(self.published)?;
        let id = id_of(self.released + self.published as u64).filter(|_| output.qos != QoS::AtMostOnce);
        let publish = Publish {
            dup: self.published < self.repeats && id.is_some(),
            qos: output.qos,
            retain: output.retain,
            topic: Some(output.topic.clone().unwrap_or_else(|| output.source.clone())),
            packet_id: id,
            payload: output.payload.clone(),
            properties: Some(Box::new(output.properties.clone())),
        };
        self.published += 1;
        if self.published == self.repeats {
            self.repeats = 0;
        }
        self.underway.extend(id);
        Some(publish)
    }

    /// An output has arrived: PUBACK or PUBREC.
    pub fn arrived(&mut self, id: PacketId) {
        self.underway.remove(&id);
    }

    /// The broker has confirmed the end of a QoS 2 output: PUBCOMP.
    pub fn ended(&mut self, id: PacketId) {
        self.ending.remove(&id);
    }

    /// The broker takes no more than so many outputs at a time.
    pub fn set_window(&mut self, window: u16) {
        self.window = usize::from(window).clamp(1, WINDOW_MAX);
    }

    /// Number of the record that was sealed last.
    pub const fn last_record(&self) -> u64 {
        self.number - 1
    }

    /// Counts of the rule since this node runs it.
    pub const fn counters(&self) -> Counters {
        self.machine.counters()
    }

    /// The machine within.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// The packet identifier of an output.
fn id_of(number: u64) -> Option<PacketId> {
    u16::try_from(number % IDS + 1).ok().and_then(PacketId::new)
}

/// Tells an input from another that has its packet identifier later.
fn digest(publish: &Publish) -> u64 {
    let mut hash = StableHash::new();
    hash.add(publish.topic.as_ref().map_or(&[], |topic| topic.as_bytes()));
    hash.add(&[0, publish.qos.as_u8()]);
    hash.add(&publish.payload);
    mix(hash.get())
}
