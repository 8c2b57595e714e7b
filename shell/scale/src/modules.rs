//! Metering and alarming as a process of their own: which nodes there are, the orchestrator says over the messaging server (EL-21, EL-22).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sedge_scale::{AlarmInput, Alarming};

use crate::bus::{Bus, GroupNews, Messages, Module, News, measured};
use crate::clock::{Clock, wall};
use crate::controller::{Message, sampling_interval};
use crate::error::ScaleError;
use crate::meter::{Measured, Meter, Sample};
use crate::report::time_of_day;
use crate::site_file::SiteFile;
use crate::state::Home;

/// Longest time between two looks at the clock.
const TURN: Duration = Duration::from_millis(100);
/// How often states of alarms are said again, for modules that began later or missed one.
const AGAIN: Duration = Duration::from_secs(5);

struct Satellite {
    bus: Bus,
    inbox: Receiver<Message>,
    clock: Clock,
    alarming: Option<Alarming>,
    nodes: Arc<Mutex<Vec<Measured>>>,
    /// Nobody has said yet which nodes there are.
    waiting: bool,
    told: Instant,
}

/// Runs modules of a site without its orchestrator, until `stop` says so.
pub(crate) fn run(
    file: &SiteFile,
    messages: &Messages,
    here: &[Module],
    stop: &dyn Fn() -> bool,
    say: &dyn Fn(&str),
) -> Result<(), ScaleError> {
    let (orders, inbox) = channel();
    let bus = Bus::open(messages, &file.path, here, orders.clone())?;
    let alarming = here.contains(&Module::Alarming).then(|| Alarming::new(file.site.clone()));
    let nodes = Arc::new(Mutex::new(Vec::new()));
    if here.contains(&Module::Metering) {
        meter(file, Arc::clone(&nodes), orders)?;
    }
    let mut satellite =
        Satellite { bus, inbox, clock: Clock::new(), alarming, nodes, waiting: true, told: Instant::now() };
    say("waits until the orchestrator says which nodes there are");
    while !stop() {
        satellite.turn(say);
    }
    satellite.bus.close();
    // The thread of the connection sends that.
    thread::sleep(TURN);
    Ok(())
}

/// Measures the nodes that there are, from a thread of its own.
fn meter(file: &SiteFile, nodes: Arc<Mutex<Vec<Measured>>>, orders: Sender<Message>) -> Result<(), ScaleError> {
    let interval = sampling_interval(&file.site);
    let path = file.path.clone();
    let watch = move || {
        let mut meter: Option<Meter> = None;
        loop {
            let begun = Instant::now();
            let nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !nodes.is_empty() {
                // The orchestrator may have made the token only now.
                let samples = meter.get_or_insert_with(|| Meter::new(&token(&path))).measure(&nodes);
                if samples.is_empty() {
                    meter = None;
                }
                if orders.send(Message::Samples(samples)).is_err() {
                    return;
                }
            }
            thread::sleep(interval.saturating_sub(begun.elapsed()));
        }
    };
    let failed = |error| ScaleError::other(format!("cannot start a thread: {error}"));
    thread::Builder::new().name("scale-meter".to_owned()).spawn(watch).map(drop).map_err(failed)
}

/// Token for requests to nodes: `SEDGE_API_TOKEN`, or that of the site, if its orchestrator runs under the same account of this machine.
fn token(path: &Path) -> String {
    let given = std::env::var("SEDGE_API_TOKEN").ok();
    given.or_else(|| Some(Home::of(path).load().ok()??.token)).unwrap_or_default()
}

impl Satellite {
    fn turn(&mut self, say: &dyn Fn(&str)) {
        let first = self.inbox.recv_timeout(TURN).ok();
        let messages: Vec<Message> = first.into_iter().chain(self.inbox.try_iter()).collect();
        for message in messages {
            match message {
                Message::Samples(samples) => {
                    self.bus.tell_samples(&samples, wall().as_millis());
                    for sample in samples {
                        self.take(sample);
                    }
                }
                Message::News(News::Groups(groups)) => self.follow(&groups, say),
                Message::News(News::Sample(sample)) => self.take(sample),
                Message::News(News::Connected) => self.tell_again(),
                Message::News(News::Alarm(..) | News::Modules(..))
                | Message::Answer(..)
                | Message::Lost { .. }
                | Message::Pause(_) => {}
            }
        }
        let now = self.clock.now();
        if let Some(alarming) = &mut self.alarming {
            alarming.handle_timeout(now);
            while let Some(notice) = alarming.poll_output() {
                self.bus.tell_alarm(&notice.alarm, notice.to, notice.value, now.wall.as_millis());
                let at = time_of_day(now.wall.as_millis());
                say(&format!("{at} alarm {}: {} -> {}", notice.alarm, notice.from, notice.to));
            }
        }
        if self.told.elapsed() >= AGAIN {
            self.tell_again();
        }
    }

    fn take(&mut self, (node, metric, value): Sample) {
        let now = self.clock.now();
        if let Some(alarming) = &mut self.alarming {
            alarming.handle(now, AlarmInput::Sample { node, metric, value });
        }
    }

    fn follow(&mut self, groups: &BTreeMap<String, GroupNews>, say: &dyn Fn(&str)) {
        let now = self.clock.now();
        let nodes = measured(groups);
        if std::mem::take(&mut self.waiting) {
            say(&format!("follows {} nodes", nodes.len()));
        }
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        let Some(alarming) = &mut self.alarming else { return };
        for (group, news) in groups {
            let nodes = news.nodes.keys().cloned().collect();
            let settled = Duration::from_millis(news.settled_ms);
            alarming.handle(now, AlarmInput::Group { group: group.clone(), nodes, settled });
        }
    }

    fn tell_again(&mut self) {
        self.told = Instant::now();
        for (name, state, value) in self.alarming.iter().flat_map(Alarming::states) {
            self.bus.tell_alarm(name, state, value, wall().as_millis());
        }
    }
}
