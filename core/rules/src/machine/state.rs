//! The state of a machine as bytes.
//!
//! A snapshot is a version, the rule's fingerprint, the time, and a list of groups, each with its key and its record. A record begins with the
//! version, too: groups may be kept one by one.

use std::collections::VecDeque;
use std::sync::Arc;

use sedge_base::Timestamp;
use sedge_mqtt::TopicName;

use super::group::{Group, Window};
use super::{KEY_MAX, Machine, TIME_MAX};
use crate::codec::{Reader, Writer};
use crate::definition::Rule;
use crate::input::CHAIN_MAX;

/// Version of the format.
const VERSION: u8 = 1;

/// Change of a group since the changes were taken last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Key of the group.
    pub key: Vec<u8>,
    /// State of the group now; `None`: the group is gone.
    pub record: Option<Vec<u8>>,
}

/// Reason why bytes are not the state of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The bytes are cut off, or no state at all.
    #[error("these bytes are no state of a rule")]
    Malformed,
    /// The rule has been changed since: the contents of its windows have another meaning now.
    #[error("this is the state of another rule, or of this one before it was changed")]
    OtherRule,
}

impl Machine {
    /// The machine's whole state but for outputs that have not been polled: poll them first.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut writer = self.header();
        writer.u64(self.now);
        writer.len(self.groups.len());
        for (key, group) in &self.groups {
            writer.bytes(key);
            writer.bytes(&self.record(group));
        }
        writer.0
    }

    /// A machine in the state of a snapshot. Counters begin anew.
    pub fn restore(rule: Arc<Rule>, snapshot: &[u8]) -> Result<Self, RestoreError> {
        let mut machine = Self::new(rule);
        let mut reader = Reader(snapshot);
        machine.check_header(&mut reader)?;
        machine.now = reader.count().filter(|now| *now <= TIME_MAX).ok_or(RestoreError::Malformed)?;
        let count = reader.len(8).ok_or(RestoreError::Malformed)?;
        for _ in 0..count {
            let (Some(key), Some(record)) = (reader.bytes(), reader.bytes()) else {
                return Err(RestoreError::Malformed);
            };
            machine.put(key, record)?;
        }
        machine.changed.clear();
        if reader.0.is_empty() { Ok(machine) } else { Err(RestoreError::Malformed) }
    }

    /// Takes over the record of one group: for owners that keep changes one by one.
    pub fn apply(&mut self, change: &Change) -> Result<(), RestoreError> {
        if let Some(record) = &change.record {
            return self.put(&change.key, record);
        }
        self.drop_group(&change.key);
        Ok(())
    }

    /// Groups that have changed since the last call, in the order of their keys.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let changed = core::mem::take(&mut self.changed);
        let record = |key: &Arc<[u8]>| self.groups.get(key).map(|group| self.record(group));
        changed.iter().map(|key| Change { key: key.to_vec(), record: record(key) }).collect()
    }

    /// The latest time that it knows.
    pub const fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn header(&self) -> Writer {
        let mut writer = Writer::default();
        writer.u8(VERSION);
        writer.u64(self.rule.fingerprint);
        writer
    }

    fn check_header(&self, reader: &mut Reader<'_>) -> Result<(), RestoreError> {
        if reader.u8() != Some(VERSION) {
            return Err(RestoreError::Malformed);
        }
        let fingerprint = reader.u64().ok_or(RestoreError::Malformed)?;
        if fingerprint == self.rule.fingerprint { Ok(()) } else { Err(RestoreError::OtherRule) }
    }

    fn record(&self, group: &Group) -> Vec<u8> {
        let mut writer = self.header();
        for time in [group.latest, group.seen, group.closed, group.timer.map_or(0, |timer| timer + 1)] {
            writer.u64(time);
        }
        writer.bytes(group.source.as_ref().map_or(&[], |topic| topic.as_bytes()));
        writer.u8(u8::from(group.memory.is_some()));
        group.memory.iter().for_each(|memory| writer.bytes(memory));
        writer.len(group.windows.len());
        for window in &group.windows {
            for number in [window.begin, window.end, window.first, window.last, window.opened, window.count] {
                writer.u64(number);
            }
            writer.len(window.chain.len());
            window.chain.iter().for_each(|name| writer.bytes(name.as_bytes()));
            window.states.iter().for_each(|state| state.write(&mut writer));
        }
        writer.0
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<(), RestoreError> {
        let mut reader = Reader(record);
        self.check_header(&mut reader)?;
        let group = read_group(&self.rule, &mut reader).filter(|_| reader.0.is_empty() && key.len() <= KEY_MAX);
        let group = group.ok_or(RestoreError::Malformed)?;
        self.drop_group(key);
        let key: Arc<[u8]> = key.into();
        let due = group.due(&self.rule);
        let timer = group.timer.map_or(due, |timer| timer.min(due));
        self.timers.insert((timer, Arc::clone(&key)));
        let rule = Arc::clone(&self.rule);
        self.now = self.now.max(group.seen);
        self.give_back(&rule, key, Group { timer: Some(timer), ..group });
        Ok(())
    }

    fn drop_group(&mut self, key: &[u8]) {
        let Some((key, _)) = self.groups.get_key_value(key) else { return };
        let key = Arc::clone(key);
        if let Some(timer) = self.take(&key).and_then(|group| group.timer) {
            self.timers.remove(&(timer, key));
        }
    }
}

fn time(reader: &mut Reader<'_>) -> Option<u64> {
    // The end of a window lies at most a week behind the latest time.
    reader.count().filter(|time| *time <= 2 * TIME_MAX)
}

fn read_group(rule: &Rule, reader: &mut Reader<'_>) -> Option<Group> {
    let (latest, seen, closed) = (time(reader)?, time(reader)?, time(reader)?);
    let timer = time(reader)?.checked_sub(1);
    let source = match reader.text()? {
        "" => None,
        topic => Some(TopicName::new(topic).ok()?),
    };
    let memory = if reader.u8()? == 1 { Some(reader.bytes()?.into()) } else { None };
    let count = reader.len(52)?;
    let windows: VecDeque<Window> = (0..count).map(|_| read_window(rule, reader)).collect::<Option<_>>()?;
    Some(Group { windows, latest, seen, closed, memory, source, timer })
}

fn read_window(rule: &Rule, reader: &mut Reader<'_>) -> Option<Window> {
    let (begin, end, first, last) = (time(reader)?, time(reader)?, time(reader)?, time(reader)?);
    let (opened, count) = (time(reader)?, reader.count()?);
    if begin > end || first > last {
        return None;
    }
    let names = reader.len(4).filter(|names| *names <= CHAIN_MAX)?;
    let chain = (0..names).map(|_| reader.text().map(Box::from)).collect::<Option<_>>()?;
    let states = rule.aggregates.iter().map(|aggregate| aggregate.read(reader)).collect::<Option<_>>()?;
    Some(Window { begin, end, first, last, opened, count, states, chain })
}
