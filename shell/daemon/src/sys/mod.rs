//! `$SYS`: reports of the node about itself for MQTT clients, in the topics that Mosquitto has.
//!
//! A thread of its own asks all threads for their counters once in `sys.interval` and hands new values to the first shard.

mod figures;
mod load;

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sedge_base::ShardId;
use sedge_broker::Report;
use sedge_cluster::sys::{EVERYWHERE, HERE};
use sedge_mqtt::TopicName;

use self::figures::{Figures, Sample};
use crate::runtime::{Letter, Shared};

/// A shard that does not answer in this time is left out once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Intervals after which what other nodes were told is no longer true.
const EXPIRY_INTERVALS: u32 = 3;

/// Tells until it is dropped.
#[derive(Debug)]
pub(crate) struct SysReporter {
    /// Dropped first: wakes the thread and ends it.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SysReporter {
    /// Tells at once and then every `interval`, 0: never, under this name of the node.
    pub(crate) fn start(shared: Arc<Shared>, interval: Duration, name: &str) -> io::Result<Self> {
        if interval.is_zero() {
            return Ok(Self { stop: None, thread: None });
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let mut teller = Teller::new(name, interval * EXPIRY_INTERVALS);
        let tell = move || {
            loop {
                if let Some(sample) = ask(&shared) {
                    let reports = teller.tell(&sample, shared.clock.uptime());
                    shared.post(ShardId(0), Letter::Report(reports));
                }
                if stopped.recv_timeout(interval) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sedge-sys".to_owned()).spawn(tell)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SysReporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that tells about the node did not end in order");
        }
    }
}

/// The counters of all threads, added up; `None` if a thread does not answer.
fn ask(shared: &Shared) -> Option<Sample> {
    let (sender, answers) = mpsc::channel();
    for number in 0..shared.boxes.len() {
        let sender = sender.clone();
        let query = move |view: &crate::runtime::View<'_>| {
            // Nobody listens any more when this took too long.
            let _ = sender.send(Sample::of(view));
        };
        shared.post(ShardId(u16::try_from(number).unwrap_or(0)), Letter::Query(Box::new(query)));
    }
    drop(sender);
    let deadline = Instant::now() + PATIENCE;
    let mut sum = Sample::default();
    for _ in &shared.boxes {
        sum.add(&answers.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?);
    }
    Some(sum)
}

/// Reports of the node's values, with the values that were told last.
struct Teller {
    figures: Figures,
    /// Where clients of other nodes find this node's values.
    root: String,
    expiry: Duration,
    /// Values that clients of this node were told last, in the order of the figures.
    told: Vec<Bytes>,
    last: Option<Instant>,
}

impl Teller {
    fn new(name: &str, expiry: Duration) -> Self {
        let root = format!("{EVERYWHERE}{}/", level(name));
        Self { figures: Figures::default(), root, expiry, told: Vec::new(), last: None }
    }

    /// The values that clients of this node do not know yet, and all values for clients of other nodes: those nodes keep a value only while
    /// somebody asks for it, and forget it when it is not told again.
    fn tell(&mut self, sample: &Sample, uptime: Duration) -> Vec<Report> {
        let now = Instant::now();
        let elapsed = self.last.replace(now).map_or(uptime, |last| now.saturating_duration_since(last));
        let mut reports = Vec::new();
        for (at, (topic, value)) in self.figures.tell(sample, uptime, elapsed).into_iter().enumerate() {
            let payload = Bytes::from(value);
            let known = self.told.get(at) == Some(&payload);
            if let (false, Ok(topic)) = (known, TopicName::new(&format!("{HERE}{topic}"))) {
                reports.push(Report { topic, payload: payload.clone(), expiry: None });
            }
            if let Ok(topic) = TopicName::new(&format!("{}{topic}", self.root)) {
                reports.push(Report { topic, payload: payload.clone(), expiry: Some(self.expiry) });
            }
            match self.told.get_mut(at) {
                Some(told) => *told = payload,
                None => self.told.push(payload),
            }
        }
        reports
    }
}

/// A name as one level of a topic.
fn level(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '/' | '+' | '#') || c.is_control() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(reports: &[Report]) -> Vec<(&str, &str)> {
        reports.iter().map(|report| (report.topic.as_str(), std::str::from_utf8(&report.payload).unwrap())).collect()
    }

    /// OP-07
    #[test]
    fn only_what_has_changed_is_told_here_and_everything_elsewhere() {
        let mut teller = Teller::new("a/b", Duration::from_secs(30));
        let first = teller.tell(&Sample::default(), Duration::from_secs(5));
        let names = |reports: &[Report], root| reports.iter().filter(|r| r.topic.as_str().starts_with(root)).count();
        assert_eq!(names(&first, HERE), names(&first, "$SYS/brokers/a_b/"));
        assert!(texts(&first).contains(&("$SYS/broker/uptime", "5 seconds")));
        assert!(texts(&first).contains(&("$SYS/broker/retained messages/count", "0")));
        assert!(texts(&first).contains(&("$SYS/brokers/a_b/load/bytes/sent/15min", "0.00")));
        let again = teller.tell(&Sample::default(), Duration::from_secs(6));
        assert_eq!(texts(&again).iter().filter(|(topic, _)| topic.starts_with(HERE)).count(), 1);
        assert_eq!(names(&again, EVERYWHERE), names(&first, EVERYWHERE));
        assert!(again.iter().all(|r| r.expiry.is_some() != r.topic.as_str().starts_with(HERE)));
    }
}
