//! Rules of a node, from start to stop: a thread for each, and one that watches who runs them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sedge_rules::Rule;

use super::run::Run;
use super::session_id;
use super::status::{Record, RuleState, RuleStatus};
use crate::crew::{Crew, Job, Roll, Work, rest};
use crate::host::{Host, Runner};

/// How often it is looked who runs a rule.
const WATCH: Duration = Duration::from_millis(100);
/// The time between two measurements of the waiting messages.
const MEASURE: Duration = Duration::from_secs(1);
/// First pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The rules of a node. Dropping them ends their threads.
#[derive(Debug)]
pub struct Rules {
    crew: Crew<Shared>,
    /// The thread that watches runs.
    is_watched: AtomicBool,
}

/// State that the threads of one rule share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rule: Arc<Rule>,
    pub(super) session: String,
    pub(super) record: Record,
    /// This node runs the rule.
    here: AtomicBool,
    stopping: AtomicBool,
}

impl Shared {
    /// Whether this node runs the rule, as far as was last seen.
    pub(super) fn goes_on(&self) -> bool {
        self.here.load(Ordering::Acquire) && !self.is_stopping()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Job for Shared {
    fn name(&self) -> String {
        format!("rule-{}", self.rule.name())
    }

    fn tell_to_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}

impl Rules {
    /// Starts these rules, all of which say where messages come from and go to. The error is that of the system if it gives no threads.
    pub fn start(rules: &BTreeMap<String, Arc<Rule>>, host: &Arc<impl Host>) -> io::Result<Self> {
        let all = Self { crew: Crew::new(), is_watched: AtomicBool::new(false) };
        all.change(rules, host)?;
        Ok(all)
    }

    /// From here on there are these rules. One that is as before goes on undisturbed; one that has changed ends first.
    pub fn change(&self, rules: &BTreeMap<String, Arc<Rule>>, host: &Arc<impl Host>) -> io::Result<()> {
        let is_as_before = |shared: &Shared| rules.get(shared.rule.name()).is_some_and(|rule| **rule == *shared.rule);
        let there = self.crew.jobs();
        let is_kept = |name: &str| there.iter().any(|shared| shared.rule.name() == name && is_as_before(shared));
        let mut new = Vec::new();
        for rule in rules.values().filter(|rule| !is_kept(rule.name())) {
            let shared = Arc::new(Shared {
                rule: Arc::clone(rule),
                session: session_id(rule.name()),
                record: Record::new(rule.name()),
                here: AtomicBool::new(false),
                stopping: AtomicBool::new(false),
            });
            let (job, host) = (Arc::clone(&shared), Arc::clone(host));
            let run: Work = Box::new(move || drive(&shared, &*host));
            new.push((job, run));
        }
        self.crew.change(is_as_before, new)?;
        if !rules.is_empty() && !self.is_watched.swap(true, Ordering::AcqRel) {
            let host = Arc::clone(host);
            self.crew.watch("rule-watch", move |roll| watch(&roll, &*host))?;
        }
        Ok(())
    }

    /// How they do, by name.
    pub fn status(&self) -> Vec<RuleStatus> {
        self.crew.jobs().iter().map(|shared| shared.record.read()).collect()
    }

    /// Tells all threads to end. They do within a second.
    pub fn tell_to_stop(&self) {
        self.crew.tell_to_stop();
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// Looks which node runs each rule, and measures the messages that wait.
fn watch(roll: &Roll<Shared>, host: &impl Host) {
    let mut measured = None::<Instant>;
    while !roll.ends() {
        let rules = roll.jobs();
        let measures = measured.is_none_or(|at| at.elapsed() >= MEASURE);
        for shared in &rules {
            observe(shared, host, measures);
        }
        if measures {
            measured = Some(Instant::now());
        }
        rest(rules.is_empty(), WATCH);
    }
}

fn observe(shared: &Shared, host: &impl Host, measures: bool) {
    if let Some(other) = Runner::observe(host, &shared.session, &shared.here) {
        shared.record.set_state(match other {
            Runner::Elsewhere(node) => RuleState::Elsewhere(node),
            Runner::Here | Runner::Nobody => RuleState::Waiting,
        });
    }
    if measures {
        shared.record.set_lag(&host.session(&shared.session).unwrap_or_default());
    }
}

/// The life of one rule: while this node runs it, one connection after the other.
fn drive(shared: &Arc<Shared>, host: &impl Host) {
    let mut pause = PAUSE;
    while !shared.is_stopping() {
        if !shared.goes_on() {
            thread::park_timeout(WATCH);
            continue;
        }
        shared.record.begin();
        match Run::begin(shared, host).and_then(Run::until_the_end) {
            Ok(()) => pause = PAUSE,
            Err(error) => {
                if shared.goes_on() {
                    shared.record.fail(&error);
                    thread::park_timeout(pause);
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}
