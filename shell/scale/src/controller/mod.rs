//! The controller's loop: the machine in the middle, threads that measure and act around it.

mod balance;
mod messages;
mod relief;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sedge_scale::site::Kind;
use sedge_scale::{Action, ActionId, ActionKind, Event, ScaleInput, ScaleOutput, Scaler, ScalerLimits, processors};

pub(crate) use self::relief::relieve;
use crate::bus::{Bus, GroupNews, Messages, Module, News};
use crate::clock::{Clock, wall};
use crate::driver::{Driver, World, driver};
use crate::error::ScaleError;
use crate::http::{self, Shown};
use crate::meter::{Measured, Meter, Sample};
use crate::modules;
use crate::network::Nodes;
use crate::process::Proof;
use crate::report::{EventReport, Report, fill};
use crate::site_file::SiteFile;
use crate::state::{Home, State};

/// Most events that are remembered.
const MAX_EVENTS: usize = 1_000;
/// Longest time between two looks at the clock.
const TURN: Duration = Duration::from_millis(100);
/// How often the report is written.
const REPORT: Duration = Duration::from_millis(500);
/// How long a new node may take to meet the others of its group before that is a failure; it is tried again.
const MEETING: Duration = Duration::from_secs(10);
/// How long a node may take to answer a question about its cluster.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a node that is to meet others is asked.
const LOOK: Duration = Duration::from_millis(50);
/// How long `--once` waits until everything is there.
const ONCE: Duration = Duration::from_mins(5);

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// End as soon as everything the site says is there.
    pub once: bool,
    /// The modules that run in this process; the others are reached over `messages`.
    pub modules: Vec<Module>,
    /// The messaging server between modules.
    pub messages: Option<Messages>,
}

/// A message to the controller's loop.
#[derive(Debug)]
pub(crate) enum Message {
    Answer(ActionId, Result<(), String>),
    Samples(Vec<Sample>),
    Lost { node: String, why: String },
    Pause(bool),
    News(News),
}

struct Controller {
    site: SiteFile,
    world: World,
    driver: Arc<dyn Driver>,
    scaler: Scaler,
    clock: Clock,
    orders: Sender<Message>,
    inbox: Receiver<Message>,
    /// Actions whose threads run: asked for again, they are not begun twice.
    running: BTreeSet<ActionId>,
    events: VecDeque<EventReport>,
    /// Load balancers that the controller could not bring up to date.
    unbalanced: BTreeSet<String>,
    shown: Shown,
    reported: Instant,
    /// The modules that run in this process.
    here: Vec<Module>,
    bus: Option<Bus>,
    /// Modules of processes elsewhere, and whether these processes run.
    elsewhere: BTreeMap<Vec<Module>, bool>,
    /// Groups as other modules were told of them last, and when.
    told: Option<(BTreeMap<String, GroupNews>, Instant)>,
}

/// Runs the controller of a site until `stop` says so, or with `once` until everything is there.
///
/// # Errors
/// The reason why the controller cannot begin, or with `once` the parts of the site that are not there in time.
pub fn run(
    file: SiteFile,
    options: &RunOptions,
    stop: &dyn Fn() -> bool,
    say: &dyn Fn(&str),
) -> Result<(), ScaleError> {
    if let (Some(messages), false) = (&options.messages, options.modules.contains(&Module::Orchestrator)) {
        return modules::run(&file, messages, &options.modules, stop, say);
    }
    let home = Home::of(&file.path);
    let _lock = home.lock()?;
    let mut controller = Controller::new(file, home, options)?;
    controller.adopt();
    controller.measure_in_background()?;
    let orders = controller.orders.clone();
    crate::tell::in_background(controller.world.clone(), Arc::clone(&controller.shown), orders)?;
    let deadline = Instant::now() + ONCE;
    let result = loop {
        controller.turn(say);
        if stop() {
            break Ok(());
        }
        if options.once && controller.scaler.is_converged() && controller.unbalanced.is_empty() {
            break Ok(());
        }
        if options.once && Instant::now() >= deadline {
            let pending = controller.scaler.status().pending.join(", ");
            break Err(ScaleError::other(format!(
                "not everything is there after {} s: {pending}; the next run goes on",
                ONCE.as_secs()
            )));
        }
    };
    controller.report(false);
    if let Some(bus) = &controller.bus {
        bus.close();
        // The thread of the connection sends that.
        thread::sleep(TURN);
    }
    result
}

impl Controller {
    fn new(site: SiteFile, home: Home, options: &RunOptions) -> Result<Self, ScaleError> {
        let mut state = home.load()?.unwrap_or_default();
        state.site.clone_from(&site.path);
        if site.site.driver == sedge_scale::site::Driver::Kubernetes {
            // Pods have the token that the person who installed them has set.
            state.token = std::env::var("SEDGE_API_TOKEN").ok().unwrap_or(state.token);
        }
        for secret in [&mut state.cluster_key, &mut state.token] {
            if secret.is_empty() {
                *secret = random_secret()?;
            }
        }
        let mut scaler = Scaler::new(site.site.clone(), ScalerLimits::default(), ActionId(state.last_action));
        if !options.modules.contains(&Module::Alarming) {
            scaler = scaler.with_alarms_elsewhere();
        }
        let (orders, inbox) = channel();
        let shown = Shown::default();
        let api = http::serve(Arc::clone(&shown), &state.token, orders.clone())?;
        state.api = Some(api.to_string());
        state.controller = Proof::of(std::process::id());
        home.save(&state)?;
        let open = |messages| Bus::open(messages, &site.path, &options.modules, orders.clone());
        let bus = options.messages.as_ref().map(open).transpose()?;
        let world = World::new(home, state);
        let driver = driver(&site.site, &world)?;
        Ok(Self {
            site,
            world,
            driver,
            scaler,
            clock: Clock::new(),
            orders,
            inbox,
            running: BTreeSet::new(),
            events: VecDeque::new(),
            unbalanced: BTreeSet::new(),
            shown,
            reported: Instant::now(),
            here: options.modules.clone(),
            bus,
            elsewhere: BTreeMap::new(),
            told: None,
        })
    }

    /// Tells the machine of the nodes and resources that an earlier controller has left.
    fn adopt(&mut self) {
        let state: State = self.world.state().clone();
        if state.paused {
            self.give(ScaleInput::Pause(true));
        }
        for (group, millicpus) in &state.millicpus {
            self.give(ScaleInput::Size { group: group.clone(), millicpus: *millicpus });
        }
        let nodes = Nodes::new(&state.token, Duration::from_secs(5));
        for (node, record) in &state.nodes {
            if !record.served {
                // Nobody knows how far its start went; it holds nothing yet.
                self.log_failure(node, self.driver.destroy(node));
                continue;
            }
            self.give(ScaleInput::Adopt { group: record.group.clone(), node: node.clone() });
            match self.driver.lost(node) {
                Some(why) => self.give(ScaleInput::Gone { node: node.clone(), why }),
                // An earlier controller may have begun to empty it.
                None if !record.http.is_empty() => drop(nodes.delete(&record.http, "/api/v1/drain")),
                None => {}
            }
        }
        for name in state.balancers.keys() {
            if !self.site.site.balancers().any(|(known, _)| known == name) {
                self.log_failure(name, self.end_balancer(name));
            }
        }
        let known = &self.site.site.resources;
        let strays: Vec<String> = state.provided.into_iter().filter(|name| !known.contains_key(name)).collect();
        for name in strays {
            let forget = |state: &mut State| state.provided.retain(|other| *other != name);
            let released = self.driver.release(&name).and_then(|()| self.world.change(forget));
            self.log_failure(&name, released);
        }
    }

    fn log_failure(&mut self, subject: &str, result: Result<(), String>) {
        if let Err(text) = result {
            let kind = sedge_scale::EventKind::Failure;
            self.remember(&Event { at: wall(), kind, subject: subject.to_owned(), text }, &|_| ());
        }
    }

    fn give(&mut self, input: ScaleInput) {
        self.scaler.handle(self.clock.now(), input);
    }

    /// One turn: takes messages, does the work that is due, and starts actions.
    fn turn(&mut self, say: &dyn Fn(&str)) {
        let now = self.clock.now().instant;
        let wait = self.scaler.poll_timeout().map_or(TURN, |at| at.since(now)).min(TURN);
        let first = self.inbox.recv_timeout(wait).ok();
        let messages: Vec<Message> = first.into_iter().chain(self.inbox.try_iter()).collect();
        for message in messages {
            self.understand(message);
        }
        self.scaler.handle_timeout(self.clock.now());
        while let Some(output) = self.scaler.poll_output() {
            match output {
                ScaleOutput::Act(action) => self.act(action),
                ScaleOutput::Balance { balancer, nodes } => self.balance(&balancer, &nodes),
                ScaleOutput::Size { group, millicpus } => {
                    let kept = self.world.change(|state| state.millicpus.insert(group, millicpus)).map(|_| ());
                    self.log_failure("controller", kept);
                }
                ScaleOutput::Notice(notice) => self.tell_alarm(&notice),
                ScaleOutput::Event(event) => self.remember(&event, say),
            }
        }
        self.tell_groups();
        if self.reported.elapsed() >= REPORT {
            self.balance_again();
            self.report(true);
        }
    }

    fn understand(&mut self, message: Message) {
        match message {
            Message::Answer(id, result) => {
                self.running.remove(&id);
                match result {
                    Ok(()) => self.give(ScaleInput::Done(id)),
                    Err(why) => self.give(ScaleInput::Failed { action: id, why }),
                }
            }
            Message::News(news) => self.learn(news),
            Message::Samples(samples) => {
                if let Some(bus) = &self.bus {
                    bus.tell_samples(&samples, wall().as_millis());
                }
                for (node, metric, value) in samples {
                    self.give(ScaleInput::Sample { node, metric, value });
                }
            }
            Message::Lost { node, why } => self.give(ScaleInput::Gone { node, why }),
            Message::Pause(paused) => {
                self.log_failure("controller", self.world.change(|state| state.paused = paused));
                self.give(ScaleInput::Pause(paused));
            }
        }
    }

    /// Begins an action in a thread of its own.
    fn act(&mut self, action: Action) {
        if !self.running.insert(action.id) {
            return;
        }
        self.log_failure(
            "controller",
            self.world.change(|state| state.last_action = state.last_action.max(action.id.0)),
        );
        let id = action.id;
        // The load balancer of this site is the controller's own work.
        if let ActionKind::Provide { resource } = &action.kind
            && self.site.site.balancers().any(|(name, _)| name == resource)
        {
            let started = self.start_balancer(resource);
            let _ = self.orders.send(Message::Answer(id, started));
            return;
        }
        let (driver, world, site, orders) =
            (Arc::clone(&self.driver), self.world.clone(), self.site.site.clone(), self.orders.clone());
        let spawned = thread::Builder::new().name("scale-action".to_owned()).spawn(move || {
            let result = perform(&*driver, &world, &site, action);
            let _ = orders.send(Message::Answer(id, result));
        });
        if let Err(error) = spawned {
            let _ = self.orders.send(Message::Answer(id, Err(format!("cannot start a thread: {error}"))));
        }
    }

    fn remember(&mut self, event: &Event, say: &dyn Fn(&str)) {
        say(&format!(
            "{} {} {}: {}",
            crate::report::time_of_day(event.at.as_millis()),
            event.kind,
            event.subject,
            event.text
        ));
        let event = EventReport::from(event);
        if let Some(bus) = &self.bus {
            bus.tell_event(&event);
        }
        self.events.push_back(event);
        while self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }

    /// Writes the report for `sedge scale status` and the API.
    fn report(&mut self, running: bool) {
        self.reported = Instant::now();
        let state = self.world.state().clone();
        let mut report = Report {
            site: self.site.path.display().to_string(),
            driver: self.site.site.driver.to_string(),
            running,
            pid: state.controller.as_ref().map(|controller| controller.pid),
            api: state.api.clone(),
            balancers: self.balancers(&state),
            modules: self.modules(),
            events: self.events.iter().cloned().collect(),
            ..Report::default()
        };
        fill(&mut report, &self.scaler, &state, self.clock.now());
        let written = serde_json::to_vec(&report).map_err(|error| error.to_string());
        let written = written.and_then(|text| {
            self.world.home.write(&self.world.home.report(), &text).map_err(|error| error.to_string())
        });
        if let Err(error) = written {
            tracing::error!(error, "the report cannot be written");
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// Measures nodes, and looks whether they are there, from a thread of its own.
    fn measure_in_background(&self) -> Result<(), ScaleError> {
        let interval = sampling_interval(&self.site.site);
        let (world, driver, orders) = (self.world.clone(), Arc::clone(&self.driver), self.orders.clone());
        let site = self.site.site.clone();
        let mut meter = self.here.contains(&Module::Metering).then(|| Meter::new(&world.state().token));
        let watch = move || loop {
            let begun = Instant::now();
            let nodes: Vec<String> =
                world.state().nodes.iter().filter(|(_, node)| node.served).map(|(name, _)| name.clone()).collect();
            for node in nodes {
                if let Some(why) = driver.lost(&node)
                    && orders.send(Message::Lost { node, why }).is_err()
                {
                    return;
                }
            }
            let samples = meter.as_mut().map(|meter| meter.measure(&measured(&world, &site)));
            if samples.is_some_and(|samples| orders.send(Message::Samples(samples)).is_err()) {
                return;
            }
            thread::sleep(interval.saturating_sub(begun.elapsed()));
        };
        let failed = |error| ScaleError::other(format!("cannot start a thread: {error}"));
        thread::Builder::new().name("scale-meter".to_owned()).spawn(watch).map(drop).map_err(failed)
    }
}

/// Does an action and returns its outcome.
fn perform(driver: &dyn Driver, world: &World, site: &sedge_scale::Site, action: Action) -> Result<(), String> {
    match action.kind {
        ActionKind::Provide { resource } => {
            let Some(Kind::Plain(plain)) = site.resources.get(&resource).map(|resource| &resource.kind) else {
                return Ok(());
            };
            driver.provide(&resource, plain)?;
            world.change(|state| {
                if !state.provided.contains(&resource) {
                    state.provided.push(resource);
                }
            })
        }
        ActionKind::Create { group, node } => {
            let spec = site.groups().find(|(name, _)| *name == group).map(|(_, group)| group.member.clone());
            let mut spec = spec.unwrap_or_default();
            spec.cpu = size(&world.state(), &group).or(spec.cpu);
            driver.create(action.id, &group, &node, &spec)?;
            meet(world, &group, &node)
        }
        ActionKind::Resize { node, millicpus, .. } => driver.resize(&node, processors(millicpus)),
        ActionKind::Remove { node, .. } => driver.remove(&node),
        ActionKind::Relieve { group, node } => relieve(world, site, &group, Some(&node), false).map(drop),
    }
}

/// Waits until a new node is in one cluster with those of its group that serve: clients that are moved to it would find no session there before.
fn meet(world: &World, group: &str, node: &str) -> Result<(), String> {
    let (record, others, nodes) = {
        let state = world.state();
        let others = state.nodes.iter().filter(|(name, other)| *name != node && other.group == group && other.served);
        let others: Vec<String> = others.map(|(_, other)| other.http.clone()).filter(|http| !http.is_empty()).collect();
        (state.nodes.get(node).cloned().unwrap_or_default(), others, Nodes::new(&state.token, PATIENCE))
    };
    if record.http.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + MEETING;
    loop {
        let members = nodes.json(&record.http, "/api/v1/status").ok();
        let members = members.and_then(|status| status.get("members")?.as_u64()).unwrap_or(0);
        // If no other node serves, there is none to meet.
        if members > 1 || !others.iter().any(|http| nodes.is_ready(http)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let seconds = MEETING.as_secs();
            return Err(format!(
                "{node} has not met the other nodes of {group} within {seconds} s, and gets no clients until it has; its log says why"
            ));
        }
        thread::sleep(LOOK);
    }
}

/// Processors that policies have given each node of a group, if a policy has changed the number in the site file.
fn size(state: &State, group: &str) -> Option<f64> {
    state.millicpus.get(group).map(|millicpus| processors(*millicpus))
}

/// The nodes that are to be measured.
fn measured(world: &World, site: &sedge_scale::Site) -> Vec<Measured> {
    let all = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let all = f64::from(u32::try_from(all).unwrap_or(1));
    let cpus = |group: &str| site.groups().find(|(name, _)| *name == group).and_then(|(_, group)| group.member.cpu);
    let state = world.state();
    let nodes = state.nodes.iter().filter(|(_, record)| record.served && !record.http.is_empty());
    let measured = nodes.map(|(node, record)| Measured {
        node: node.clone(),
        http: record.http.clone(),
        cpus: size(&state, &record.group).or_else(|| cpus(&record.group)).unwrap_or(all),
    });
    measured.collect()
}

/// A quarter of the shortest period, between 250 ms and 10 s.
pub(crate) fn sampling_interval(site: &sedge_scale::Site) -> Duration {
    let shortest = site.alarms().map(|(_, alarm)| alarm.period).min().unwrap_or(Duration::from_secs(40));
    (shortest / 4).clamp(Duration::from_millis(250), Duration::from_secs(10))
}

/// 256 bits that nobody else knows.
fn random_secret() -> Result<String, ScaleError> {
    let mut secret = String::new();
    for _ in 0..4 {
        let word = getrandom::u64()
            .map_err(|error| ScaleError::other(format!("the system has no random numbers: {error}")))?;
        let _ = write!(secret, "{word:016x}");
    }
    Ok(secret)
}
