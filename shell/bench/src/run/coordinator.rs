//! Leads the drivers through the phases of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::outcome::{FaultDone, Outcome};
use super::raw::RawFile;
use super::watch::Watch;
use super::{Options, Process};
use crate::clock::Clock;
use crate::driver::{Command, Event, Handle, Progress, Setup, spawn};
use crate::error::BenchError;
use crate::fault::{self, Fault};
use crate::host;
use crate::measure::{SentRange, Tally, Window};
use crate::metrics::Metrics;
use crate::num;
use crate::remote::{Remote, Share};
use crate::scenario::Scenario;

/// Most time for all clients to connect, and for all to subscribe, in ns.
const SETUP: u64 = 120_000_000_000;
/// Time without any delivery after which nothing more is expected, in ns.
const QUIET: u64 = 1_000_000_000;
/// Time between the command to publish and the first message, so that all drivers are ready, in ns.
const AHEAD: u64 = 50_000_000;
/// Most time for drivers to end, removing sessions included, in ns.
const FAREWELL: u64 = 15_000_000_000;
/// Time for a driver to answer a question in ns.
const ANSWER: u64 = 30_000_000_000;

/// Runs `scenario`. `note` is told what is going on, a few times a second at most.
pub(crate) fn run(scenario: &Scenario, options: &Options, note: &mut dyn FnMut(&str)) -> Result<Outcome, BenchError> {
    let mut coordinator = Coordinator::new(scenario, options, note)?;
    let mut result = coordinator.lead(scenario, options);
    let left = coordinator.finish();
    if let Ok(outcome) = result.as_mut()
        && left > 0
    {
        outcome.warnings.push(format!("{left} sessions are still in brokers that could not be reached to remove them"));
    }
    result
}

/// Where a driver is.
enum Peer {
    Local(Handle),
    /// A process with several of them.
    Remote(Remote),
}

/// In the closed loop deliveries have to come back to the process that published.
fn check_loops(setup: &Setup, remotes: &[Remote]) -> Result<(), BenchError> {
    let mut processes = Vec::new();
    for (process, remote) in remotes.iter().enumerate() {
        processes.extend(std::iter::repeat_n(process, remote.threads));
    }
    let process = |driver: usize| processes.get(driver);
    if setup.plan.loops().all(|(publisher, subscriber)| process(publisher) == process(subscriber)) {
        return Ok(());
    }
    Err(BenchError::Usage(
        "several driver processes: this scenario needs a rate (open loop), or --until ack".to_owned(),
    ))
}

struct Coordinator<'a> {
    setup: Arc<Setup>,
    peers: Vec<Peer>,
    events: Receiver<(usize, Event)>,
    /// Events that came while the coordinator waited for a time: a short run may be over by then.
    early: Vec<(usize, Event)>,
    progress: Vec<Progress>,
    clock: Clock,
    watch: Watch,
    note: &'a mut dyn FnMut(&str),
    noted: u64,
    faults: Vec<Fault>,
    network: Option<PathBuf>,
    faults_done: Vec<FaultDone>,
    processes: Vec<Process>,
    origin: u64,
    warnings: Vec<String>,
    clocks: Vec<String>,
    raw: RawFile,
}

/// The end of one step of the coordinator's wait: an event came, or the time did.
enum Step {
    Event(usize, Event),
    Time,
}

/// A number for the run that begins at `now`, in ms. Different from run to run, so that nothing an earlier run left behind is taken for
/// this one's, and client ids are no other's, also of one that begins at the same time in this process.
fn next_run(now: u32) -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let next = |last: u32| Some(now.max(last.wrapping_add(1)));
    LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_or(now, |last| now.max(last.wrapping_add(1)))
}

impl<'a> Coordinator<'a> {
    fn new(scenario: &Scenario, options: &Options, note: &'a mut dyn FnMut(&str)) -> Result<Self, BenchError> {
        if options.brokers.is_empty() {
            return Err(BenchError::Usage("no broker: give --broker HOST:PORT".to_owned()));
        }
        fault::check(&options.faults, options.network.as_deref(), &options.processes)?;
        let metrics = Metrics::new(&options.metrics, options.token.clone())?;
        let clock = Clock::new();
        let mut remotes = Vec::new();
        for address in &options.drivers {
            remotes.push(Remote::connect(address, &clock)?);
        }
        let threads = if remotes.is_empty() { options.threads.max(1) } else { 0 };
        let drivers = threads + remotes.iter().map(|remote| remote.threads).sum::<usize>();
        let share = Share {
            scenario: scenario.clone(),
            brokers: options.brokers.clone(),
            username: options.username.clone(),
            password: options.password.clone(),
            run: next_run(u32::try_from(clock.now() / 1_000_000 % u64::from(u32::MAX)).unwrap_or(0)),
            raw: options.raw.is_some(),
            drivers,
            first: 0,
            ahead: 0,
        };
        let setup = Arc::new(Setup::new(share.clone(), options, clock)?);
        let mut warnings = Vec::new();
        let (sender, events) = channel();
        let mut peers = Vec::new();
        if remotes.is_empty() {
            let (destinations, sources) = (num::count(options.brokers.len()), num::count(options.sources.len()));
            warnings = host::prepare_for(scenario.clients(), destinations, sources).map_err(BenchError::Usage)?;
            for index in 0..threads {
                peers.push(Peer::Local(spawn(&setup, index, sender.clone())?));
            }
        } else {
            check_loops(&setup, &remotes)?;
        }
        let clocks = remotes.iter().map(Remote::clock_note).collect();
        let mut first = 0;
        for mut remote in remotes {
            let ahead = remote.ahead;
            remote.take(Share { first, ahead, ..share.clone() }, sender.clone())?;
            first += remote.threads;
            peers.push(Peer::Remote(remote));
        }
        let mut faults = options.faults.clone();
        faults.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Ok(Self {
            setup,
            progress: vec![Progress::default(); drivers],
            peers,
            events,
            early: Vec::new(),
            clock,
            watch: Watch::new(clock, options.pids.clone(), metrics).with(&options.processes),
            processes: options.processes.clone(),
            note,
            noted: 0,
            faults,
            network: options.network.clone(),
            faults_done: Vec::new(),
            origin: u64::MAX,
            warnings,
            clocks,
            raw: RawFile::create(options.raw.as_ref())?,
        })
    }

    fn lead(&mut self, scenario: &Scenario, options: &Options) -> Result<Outcome, BenchError> {
        self.watch.enter(Some("connect"));
        let began = self.clock.now();
        self.tell(&Command::Connect)?;
        self.all(SETUP, "connect", |event| matches!(event, Event::Connected))?;
        let connect_s = num::seconds(self.clock.now() - began);
        self.watch.enter(Some("subscribe"));
        self.tell(&Command::Subscribe)?;
        self.all(SETUP, "subscribe", |event| matches!(event, Event::Subscribed))?;
        self.watch.enter(Some("idle"));
        self.wait(self.clock.now() + num::nanos(scenario.idle_s))?;
        self.watch.enter(Some("warm-up"));
        let origin = self.clock.now() + AHEAD;
        let start = origin + num::nanos(scenario.warmup_s);
        let limited = scenario.messages.is_some();
        let end = if limited { u64::MAX } else { start + num::nanos(scenario.measure_s) };
        let window = Window { start, end };
        self.origin = origin;
        self.tell(&Command::Publish { origin, window })?;
        self.wait(start)?;
        self.watch.enter(Some("measure"));
        let tcp = host::tcp_counters();
        if limited {
            self.all(u64::MAX, "publish", |event| matches!(event, Event::Published))?;
            self.drain(num::nanos(scenario.drain_s))?;
        } else {
            self.wait(end)?;
        }
        let end = self.clock.now().min(end);
        let retransmitted = {
            let now = host::tcp_counters();
            num::ratio(num::real(now.resent - tcp.resent), num::real(now.sent - tcp.sent))
        };
        self.watch.enter(Some("drain"));
        if !limited {
            self.drain(num::nanos(scenario.drain_s))?;
        }
        self.watch.enter(Some("end"));
        let (sent, tally) = self.collect(end)?;
        self.watch.enter(None);
        self.warnings.extend(self.watch.warnings());
        let measured = tally.last_delivery.saturating_sub(start);
        let streams = self.setup.plan.streams.iter().zip(&sent).filter(|(stream, _)| !stream.probe);
        let expected = streams.map(|(stream, range)| stream.fan_out * range.count()).sum();
        Ok(Outcome {
            scenario: scenario.clone(),
            brokers: options.brokers.iter().map(ToString::to_string).collect(),
            sp_ratio: self.setup.plan.sp_ratio(),
            nominal_rate: self.setup.plan.nominal_rate(),
            clients: scenario.clients(),
            connect_s,
            measure_s: num::seconds(if limited { measured.max(1) } else { end - start }),
            expected,
            completion_s: num::seconds(measured),
            tally,
            phases: std::mem::take(&mut self.watch.phases),
            samples: std::mem::take(&mut self.watch.samples),
            processes: std::mem::take(&mut self.watch.processes).into_iter().map(|(_, samples)| samples).collect(),
            origin_s: self.watch.since_began(origin),
            faults: std::mem::take(&mut self.faults_done),
            warnings: std::mem::take(&mut self.warnings),
            retransmitted,
            clocks: std::mem::take(&mut self.clocks),
        })
    }

    /// Waits until nothing is under way any more, nothing has come for long, or `most` ns have gone by.
    fn drain(&mut self, most: u64) -> Result<(), BenchError> {
        let deadline = self.clock.now() + most;
        let mut last = (0, 0);
        let mut moved = self.clock.now();
        loop {
            let now = self.clock.now();
            let sum = self.sum();
            if (sum.received, sum.inflight) != last {
                (last, moved) = ((sum.received, sum.inflight), now);
            }
            let complete = sum.received >= sum.expected && sum.inflight == 0 && sum.duplicates == 0;
            // One report may be older than the last message: believe only what a whole round of reports confirms.
            if now >= deadline && !complete && now - moved < QUIET && most > 0 {
                self.warnings.push("messages still came when the drain ended: what is lost may be late".to_owned());
            }
            if now >= deadline || now - moved > if complete { 3 * AHEAD } else { self.patience() } {
                return Ok(());
            }
            self.step(now + AHEAD)?;
        }
    }

    /// How long a silence may last. After a fault messages come back when the broker does, and clients that are sent elsewhere get what
    /// waits for them once they are there.
    fn patience(&self) -> u64 {
        let stays = self.faults_done.is_empty() && !self.setup.scenario.reconnect;
        if stays { QUIET } else { 10 * QUIET }
    }

    fn collect(&mut self, end: u64) -> Result<(Vec<SentRange>, Tally), BenchError> {
        self.tell(&Command::Report { end })?;
        let mut sent = vec![SentRange::default(); self.setup.plan.streams.len()];
        for event in self.all(ANSWER, "report", |event| matches!(event, Event::Sent(_)))? {
            let Event::Sent(ranges) = event else { continue };
            for range in ranges {
                if let Some(place) = sent.get_mut(num::index(u64::from(range.stream))) {
                    *place = range;
                }
            }
        }
        let sent = Arc::new(sent);
        self.tell(&Command::Settle(Arc::clone(&sent)))?;
        let mut tally = Tally::default();
        for event in self.all(ANSWER, "count", |event| matches!(event, Event::Tally(_)))? {
            if let Event::Tally(one) = event {
                tally.merge(&one);
            }
        }
        Ok((Arc::unwrap_or_clone(sent), tally))
    }

    fn tell(&mut self, command: &Command) -> Result<(), BenchError> {
        for peer in &mut self.peers {
            let driver = match peer {
                Peer::Local(driver) => driver,
                Peer::Remote(remote) => {
                    remote.tell(command)?;
                    continue;
                }
            };
            let gone = || BenchError::Driver("a driver has ended".to_owned());
            driver.commands.send(command.clone()).ok().ok_or_else(gone)?;
            driver.waker.wake().map_err(BenchError::system("waking a driver"))?;
        }
        Ok(())
    }

    /// Waits for one event of the kind `wanted` from each driver.
    fn all(&mut self, most: u64, what: &str, wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>, BenchError> {
        let deadline = self.clock.now().saturating_add(most);
        let mut answers: Vec<Option<Event>> = vec![None; self.progress.len()];
        for (index, event) in std::mem::take(&mut self.early) {
            if let Some(place) = answers.get_mut(index).filter(|_| wanted(&event)) {
                *place = Some(event);
            }
        }
        while answers.iter().any(Option::is_none) {
            if self.clock.now() >= deadline {
                let done = answers.iter().flatten().count();
                let sum = self.sum();
                return Err(BenchError::Driver(format!(
                    "only {done} of {} drivers could {what} in time; {} of {} clients are connected",
                    answers.len(),
                    sum.connected,
                    self.setup.plan.clients.len()
                )));
            }
            if let Step::Event(index, event) = self.step(deadline)?
                && wanted(&event)
                && let Some(place) = answers.get_mut(index)
            {
                *place = Some(event);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Waits until `until`.
    fn wait(&mut self, until: u64) -> Result<(), BenchError> {
        while self.clock.now() < until {
            if let Step::Event(index, event) = self.step(until)? {
                self.early.push((index, event));
            }
        }
        Ok(())
    }

    /// Waits for the next event, at most until `until`, and does what is due meanwhile.
    fn step(&mut self, until: u64) -> Result<Step, BenchError> {
        self.watch.tick();
        self.do_faults();
        self.show();
        let due = self.faults.first().map_or(u64::MAX, |fault| self.due(fault));
        let now = self.clock.now();
        let wait = until.min(self.watch.next()).min(due).saturating_sub(now);
        match self.events.recv_timeout(Duration::from_nanos(wait)) {
            Ok((_, Event::Failed(text))) => Err(BenchError::Driver(text)),
            Ok((_, Event::Warning(text))) => {
                self.warnings.push(text);
                Ok(Step::Time)
            }
            Ok((_, Event::Raw(deliveries))) => self.raw.write(&deliveries).map(|()| Step::Time),
            Ok((index, Event::Progress(progress))) => {
                if let Some(place) = self.progress.get_mut(index) {
                    *place = progress;
                }
                Ok(Step::Time)
            }
            Ok((index, event)) => Ok(Step::Event(index, event)),
            Err(RecvTimeoutError::Timeout) => Ok(Step::Time),
            Err(RecvTimeoutError::Disconnected) => Err(BenchError::Driver("all drivers have ended".to_owned())),
        }
    }

    fn due(&self, fault: &Fault) -> u64 {
        let warmup = num::nanos(self.setup.scenario.warmup_s);
        self.origin.saturating_add(warmup).saturating_add(num::nanos(fault.at_s))
    }

    fn do_faults(&mut self) {
        while let Some(fault) = self.faults.first().cloned() {
            let now = self.clock.now();
            if self.due(&fault) > now {
                return;
            }
            self.faults.remove(0);
            if let Err(error) = fault.action.carry_out(self.network.as_deref(), &self.processes) {
                self.warnings.push(format!("{}: {error}", fault.action));
            }
            let at_s = num::seconds(now.saturating_sub(self.origin));
            self.faults_done.push(FaultDone { at_s, what: fault.action.to_string() });
        }
    }

    fn sum(&self) -> Progress {
        self.progress.iter().fold(Progress::default(), |sum, one| sum.merge(*one))
    }

    /// Tells how far the run is, once a second.
    fn show(&mut self) {
        let now = self.clock.now();
        if now < self.noted + 1_000_000_000 {
            return;
        }
        self.noted = now;
        let sum = self.sum();
        let time = self.watch.since_began(now);
        (self.note)(&format!(
            "{time:.0} s: {} clients, {} sent, {} received, {} under way",
            sum.connected,
            sum.sent,
            sum.received,
            sum.expected.saturating_sub(sum.received)
        ));
    }

    /// Ends all drivers; returns how many sessions they had to leave in brokers.
    fn finish(mut self) -> u64 {
        // A driver that has ended by itself needs no command.
        let _ = self.tell(&Command::Finish);
        let deadline = self.clock.now() + FAREWELL;
        let (mut left, mut ended) = (0, 0);
        while ended < self.progress.len() && self.clock.now() < deadline {
            let wait = Duration::from_nanos(deadline.saturating_sub(self.clock.now()));
            match self.events.recv_timeout(wait) {
                Ok((_, Event::Finished(sessions))) => (left, ended) = (left + sessions, ended + 1),
                // Whoever cannot go on says nothing more.
                Ok((_, Event::Failed(_))) => ended += 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        for peer in self.peers {
            if let Peer::Local(driver) = peer {
                let _ = driver.thread.join();
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_begin_at_the_same_time_have_different_numbers() {
        let first = next_run(u32::MAX - 9);
        let numbers = [first, next_run(u32::MAX - 9), next_run(u32::MAX - 9)];
        assert!(numbers.iter().all(|number| *number >= u32::MAX - 9));
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2], "{numbers:?}");
    }
}
