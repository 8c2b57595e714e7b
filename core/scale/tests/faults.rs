//! Random worlds: samples and answers come late, get lost or come twice, nodes die, the load jumps. What must never be true is checked
//! after each event; what must become true, after the faults end. `cargo test -p sedge-scale --release -- --ignored` takes 10,000 worlds.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::site;
use sedge_base::{Instant, Now, Rng, Timestamp};
use sedge_scale::site::Metric;
use sedge_scale::{Action, ActionId, ActionKind, MemberState, ScaleInput, ScaleOutput, Scaler, ScalerLimits};

const COOLDOWN: u64 = 60;
const MAX: usize = 3;

struct World {
    seed: u64,
    rng: Rng,
    now: u64,
    faults: bool,
    scaler: Scaler,
    /// Nodes that exist, whatever the machine knows.
    alive: BTreeSet<String>,
    /// Inputs on their way to the machine, by the time at which each arrives.
    mail: BTreeMap<(u64, u64), ScaleInput>,
    mails: u64,
    decisions: usize,
    last_decision: Option<u64>,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let scaler = Scaler::new(site(&[]), ScalerLimits::default(), ActionId(0));
        Self {
            seed,
            rng: Rng::new(seed),
            now: 0,
            faults: true,
            scaler,
            alive: BTreeSet::new(),
            mail: BTreeMap::new(),
            mails: 0,
            decisions: 0,
            last_decision: None,
            trace: Vec::new(),
        }
    }

    fn clocks(&self) -> Now {
        Now { instant: Instant::from_millis(self.now * 1_000), wall: Timestamp::from_millis(self.now * 1_000) }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.faults && self.rng.below(100) < percent
    }

    /// An answer on its way: late, perhaps lost, perhaps twice.
    fn post(&mut self, input: &ScaleInput) {
        let copies = if self.chance(10) { 0 } else { 1 + u64::from(self.chance(10)) };
        for _ in 0..copies {
            let delay = if self.faults { self.rng.below(20) } else { 0 };
            self.mails += 1;
            self.mail.insert((self.now + delay, self.mails), input.clone());
        }
    }

    fn act(&mut self, action: &Action) {
        if self.chance(10) {
            return; // The request is lost.
        }
        let failed = self.chance(10);
        let mut answer = ScaleInput::Done(action.id);
        match &action.kind {
            ActionKind::Create { node, .. } if !failed => drop(self.alive.insert(node.clone())),
            ActionKind::Remove { node, .. } if !failed => drop(self.alive.remove(node)),
            ActionKind::Create { .. }
            | ActionKind::Remove { .. }
            | ActionKind::Provide { .. }
            | ActionKind::Relieve { .. }
            | ActionKind::Resize { .. } => {
                if failed {
                    answer = ScaleInput::Failed { action: action.id, why: "it could not".to_owned() };
                }
            }
        }
        self.post(&answer);
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.scaler.poll_output() {
            self.trace.push(format!("{} {output:?}", self.now));
            if let ScaleOutput::Act(action) = output {
                self.act(&action);
            }
        }
        let alive = self.alive.len();
        assert!(alive <= MAX, "seed {}: {alive} nodes exist at {}: {:?}", self.seed, self.now, self.alive);
        assert_eq!(self.scaler.validate(), Ok(()), "seed {}", self.seed);
        let decisions = self.scaler.decisions().count();
        if decisions > self.decisions {
            assert_eq!(decisions, self.decisions + 1, "seed {}: two decisions at once", self.seed);
            if let Some(last) = self.last_decision {
                assert!(self.now - last >= COOLDOWN, "seed {}: decisions at {last} and {}", self.seed, self.now);
            }
            self.decisions = decisions;
            self.last_decision = Some(self.now);
        }
    }

    fn second(&mut self, load: f64) {
        self.now += 1;
        if self.chance(1) && self.alive.len() > 1 {
            let alive: Vec<String> = self.alive.iter().cloned().collect();
            let Some(victim) = self.rng.pick(&alive).cloned() else { return };
            self.alive.remove(&victim);
        }
        let status = self.scaler.status();
        for member in status.groups.iter().flat_map(|group| &group.members) {
            if member.state == MemberState::Serving && !self.alive.contains(&member.name) {
                self.post(&ScaleInput::Gone { node: member.name.clone(), why: "gone".to_owned() });
            }
        }
        let share = load / f64::from(u32::try_from(self.alive.len().max(1)).expect("it fits"));
        for node in self.alive.clone() {
            self.post(&ScaleInput::Sample { node, metric: Metric::CpuUtil, value: share.min(100.0) });
        }
        let due: Vec<(u64, u64)> = self.mail.range(..(self.now + 1, 0)).map(|(key, _)| *key).collect();
        for key in due {
            let input = self.mail.remove(&key).expect("it was found");
            self.scaler.handle(self.clocks(), input);
            self.drain_outputs();
        }
        self.scaler.handle_timeout(self.clocks());
        self.drain_outputs();
    }
}

fn run(seed: u64) -> Vec<String> {
    let mut world = World::new(seed);
    let mut load = 50.0;
    for second in 0..1_500 {
        if second % 200 == 0 {
            load = f64::from(u32::try_from(world.rng.below(320)).expect("it fits"));
        }
        world.second(load);
    }
    world.faults = false;
    for _ in 0..1_200 {
        world.second(load);
    }
    let size = world.alive.len();
    let decisions = world.decisions;
    for _ in 0..1_200 {
        world.second(load);
    }
    assert_eq!(
        (world.alive.len(), world.decisions),
        (size, decisions),
        "seed {seed}: it flaps under the constant load {load}"
    );
    let serving: BTreeSet<String> =
        world.scaler.status().groups[0].members.iter().map(|member| member.name.clone()).collect();
    assert_eq!(serving, world.alive, "seed {seed}: the machine and the world differ");
    let each = load / f64::from(u32::try_from(size).expect("it fits"));
    assert!(each <= 80.0 || size == MAX, "seed {seed}: {size} nodes have {each} % each");
    world.trace
}

/// EL-17, EL-18, EL-26
#[test]
fn it_stays_within_its_bounds_and_settles_whatever_gets_lost() {
    for seed in 0..200 {
        run(seed);
    }
}

/// EL-17, EL-18, EL-26
#[test]
#[ignore = "minutes: ./test histories"]
fn ten_thousand_worlds() {
    for seed in 0..10_000 {
        run(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(run(7), run(7));
}
