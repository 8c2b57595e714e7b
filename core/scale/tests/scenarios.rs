//! The rules of Pham's cluster, one by one, on a world that does what it is asked.

mod common;

use common::site;
use sedge_base::{Instant, Now, Timestamp};
use sedge_scale::site::{Kind, Metric, Op};
use sedge_scale::{
    ActionId, ActionKind, AlarmState, EventKind, MemberState, Notice, ScaleInput, ScaleOutput, Scaler, ScalerLimits,
    Site,
};

/// A site whose nodes carry an equal share of a load.
struct World {
    scaler: Scaler,
    now: u64,
    notices: Vec<Notice>,
    balanced: Vec<Vec<String>>,
    sizes: Vec<(u64, usize)>,
    removed: Vec<String>,
    refuse_removal: bool,
}

impl World {
    fn new(site: Site) -> Self {
        let scaler = Scaler::new(site, ScalerLimits::default(), ActionId(0));
        let (notices, balanced, sizes, removed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut world = Self { scaler, now: 0, notices, balanced, sizes, removed, refuse_removal: false };
        world.run(1, |_| None);
        world
    }

    fn clocks(&self) -> Now {
        Now { instant: Instant::from_millis(self.now * 1_000), wall: Timestamp::from_millis(self.now * 1_000) }
    }

    fn serving(&self) -> Vec<String> {
        let status = self.scaler.status();
        let members = status.groups.iter().flat_map(|group| &group.members);
        members.filter(|member| member.state == MemberState::Serving).map(|member| member.name.clone()).collect()
    }

    /// Runs for some seconds; `load` is the CPU share of all nodes together.
    fn run(&mut self, seconds: u64, load: impl Fn(u64) -> Option<f64>) {
        for _ in 0..seconds {
            self.now += 1;
            let nodes = self.serving();
            if let Some(load) = load(self.now) {
                let each = load / f64::from(u32::try_from(nodes.len()).expect("few nodes"));
                for node in &nodes {
                    self.give(ScaleInput::Sample { node: node.clone(), metric: Metric::CpuUtil, value: each });
                }
            }
            self.scaler.handle_timeout(self.clocks());
            self.work();
            let size = self.serving().len();
            if self.sizes.last().is_none_or(|(_, before)| *before != size) {
                self.sizes.push((self.now, size));
            }
            assert_eq!(self.scaler.validate(), Ok(()));
        }
    }

    fn give(&mut self, input: ScaleInput) {
        self.scaler.handle(self.clocks(), input);
    }

    fn millicpus(&self) -> Option<u32> {
        self.scaler.status().groups[0].millicpus
    }

    fn hold(&self) -> Option<String> {
        self.scaler.status().groups[0].hold.clone()
    }

    fn work(&mut self) {
        while let Some(output) = self.scaler.poll_output() {
            match output {
                ScaleOutput::Act(action) => {
                    if let ActionKind::Remove { node, .. } = &action.kind {
                        assert!(
                            self.balanced.last().is_none_or(|nodes| !nodes.contains(node)),
                            "the balancer still has {node}"
                        );
                        self.removed.push(node.clone());
                    }
                    if self.refuse_removal && matches!(action.kind, ActionKind::Remove { .. }) {
                        self.give(ScaleInput::Failed { action: action.id, why: "no".to_owned() });
                    } else {
                        self.give(ScaleInput::Done(action.id));
                    }
                }
                ScaleOutput::Balance { nodes, .. } => self.balanced.push(nodes),
                ScaleOutput::Notice(notice) => self.notices.push(notice),
                ScaleOutput::Event(_) | ScaleOutput::Size { .. } => {}
            }
        }
    }
}

/// EL-15, EL-17, EL-18: load step, second node after a period, third not before a minute, never a fourth.
#[test]
fn it_grows_by_one_a_minute_up_to_its_bound() {
    let mut world = World::new(site(&[]));
    assert_eq!(world.sizes, [(1, 1)]);
    world.run(400, |_| Some(500.0));
    let times: Vec<u64> = world.sizes.iter().map(|(at, _)| *at).collect();
    assert_eq!(world.sizes.iter().map(|(_, size)| *size).collect::<Vec<_>>(), [1, 2, 3]);
    assert!((60..=75).contains(&times[1]), "{times:?}");
    assert!(times[2] - times[1] >= 60 && times[2] - times[1] <= 140, "{times:?}");
    let status = world.scaler.status();
    assert!(status.groups[0].hold.as_deref().is_some_and(|hold| hold.contains("max is 3")), "{status:?}");
}

/// EL-16: load off, back to one, one node at a time.
#[test]
fn it_shrinks_to_its_minimum_when_the_load_ends() {
    let mut world = World::new(site(&[]));
    world.run(400, |_| Some(500.0));
    world.sizes.clear();
    world.run(600, |_| Some(3.0));
    assert_eq!(world.sizes.iter().map(|(_, size)| *size).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(world.balanced.last().map(Vec::len), Some(1));
    let reasons: Vec<&str> = world.scaler.decisions().map(|decision| decision.reason.as_str()).collect();
    assert!(
        reasons[0].contains("mean cpu_util") && reasons[0].contains("> 80 for 60 s (alarm high) (policy out)"),
        "{reasons:?}"
    );
}

/// EL-14: one notice for each transition.
#[test]
fn each_change_of_an_alarm_is_told_once() {
    let mut world = World::new(site(&["resources.brokers.max = 1"]));
    world.run(600, |now| Some(if (200..400).contains(&now) { 95.0 } else { 50.0 }));
    let high: Vec<AlarmState> =
        world.notices.iter().filter(|notice| notice.alarm == "high").map(|notice| notice.to).collect();
    assert_eq!(high, [AlarmState::Ok, AlarmState::Alarm, AlarmState::Ok]);
}

/// Without samples nothing is known, and nothing is done.
#[test]
fn insufficient_data_never_triggers() {
    let mut world = World::new(site(&[]));
    world.run(300, |_| None);
    assert_eq!(world.sizes.len(), 1);
}

/// Guard against flapping: in only if the remaining nodes would stay below the bound for out.
#[test]
fn it_does_not_shrink_into_the_load_that_would_make_it_grow() {
    let mut world = World::new(site(&["resources.low.threshold = 60", "resources.brokers.min = 1"]));
    world.run(200, |_| Some(170.0));
    assert_eq!(world.serving().len(), 3);
    world.sizes.clear();
    world.run(1_000, |_| Some(170.0));
    assert!(world.sizes.iter().all(|(_, size)| *size == 3), "{:?}", world.sizes);
    let hold = world.scaler.status().groups[0].hold.clone();
    assert!(hold.is_some_and(|hold| hold.contains("with 2 nodes mean cpu_util would be 85.0")));
}

/// Scale-in waits while sessions have too few copies.
#[test]
fn it_does_not_shrink_while_copies_are_missing() {
    let mut world = World::new(site(&[]));
    world.run(400, |_| Some(500.0));
    world.give(ScaleInput::Sample { node: "brokers-1".to_owned(), metric: Metric::CopiesMissing, value: 1.0 });
    world.run(300, |_| Some(3.0));
    assert_eq!(world.serving().len(), 3);
    world.give(ScaleInput::Sample { node: "brokers-1".to_owned(), metric: Metric::CopiesMissing, value: 0.0 });
    world.run(200, |_| Some(3.0));
    assert!(world.serving().len() < 3);
}

/// The node with the fewest sessions goes, not the youngest.
#[test]
fn the_cheapest_node_goes() {
    let mut world = World::new(site(&["resources.brokers.min = 1"]));
    world.run(400, |_| Some(500.0));
    for (node, sessions) in [("brokers-1", 5.0), ("brokers-2", 500.0), ("brokers-3", 700.0)] {
        world.give(ScaleInput::Sample { node: node.to_owned(), metric: Metric::Sessions, value: sessions });
    }
    world.run(200, |_| Some(3.0));
    assert_eq!(world.removed.first().map(String::as_str), Some("brokers-1"));
}

/// A `StatefulSet` gives up its last pod first, so that node goes whatever it costs.
#[test]
fn the_last_node_goes_where_nothing_else_can() {
    let mut world = World::new(site(&["driver = kubernetes", "resources.brokers.min = 1"]));
    world.run(400, |_| Some(500.0));
    for (node, sessions) in [("brokers-1", 5.0), ("brokers-2", 500.0), ("brokers-3", 700.0)] {
        world.give(ScaleInput::Sample { node: node.to_owned(), metric: Metric::Sessions, value: sessions });
    }
    world.run(200, |_| Some(3.0));
    assert_eq!(world.removed, ["brokers-3", "brokers-2"]);
}

/// A node that cannot be emptied serves on, is in the balancer again, and is asked again only after the cool-down.
#[test]
fn a_removal_that_fails_leaves_the_node_serving() {
    let mut world = World::new(site(&[]));
    world.run(400, |_| Some(500.0));
    world.refuse_removal = true;
    world.run(150, |_| Some(3.0));
    assert_eq!(world.serving().len(), 3);
    assert_eq!(world.balanced.last().map(Vec::len), Some(3));
    assert!(!world.removed.is_empty() && world.removed.len() <= 3, "{:?}", world.removed);
}

/// EL-26: a node that is gone is started again, with a growing pause if it fails again.
#[test]
fn a_lost_node_is_replaced() {
    let mut world = World::new(site(&["resources.brokers.min = 2"]));
    world.run(5, |_| Some(100.0));
    world.give(ScaleInput::Gone { node: "brokers-2".to_owned(), why: "killed".to_owned() });
    assert_eq!(world.serving(), ["brokers-1"]);
    world.run(3, |_| Some(100.0));
    assert_eq!(world.serving(), ["brokers-1", "brokers-2"]);
    assert_eq!(world.balanced.last().map(Vec::len), Some(2));
}

/// A group whose nodes are given half a processor more above 80 %, and half a processor less below 25 %.
fn sized() -> Site {
    site(&[
        "resources.brokers.member.cpu = 1",
        "resources.brokers.min = 2",
        "resources.out.resize.cpu = 0.5",
        "resources.out.resize.min = 1",
        "resources.out.resize.max = 1.8",
        "resources.in.resize.cpu = -0.5",
        "resources.in.resize.min = 1",
        "resources.in.resize.max = 1.8",
    ])
}

/// EL-20: the load of each node is given in processors; an alarm gives all nodes more of them, up to the bound, and takes them back.
#[test]
fn a_rule_changes_the_size_of_the_nodes_and_not_their_number() {
    let mut world = World::new(sized());
    world.run(300, |_| Some(190.0));
    assert_eq!((world.serving().len(), world.millicpus()), (2, Some(1_800)));
    let sizes = world.scaler.decisions().filter_map(|decision| decision.reason.split(" processors").next());
    let sizes: Vec<&str> = sizes.collect();
    assert_eq!(sizes, ["1 -> 1.5", "1.5 -> 1.8"]);
    assert!(world.hold().is_some_and(|hold| hold.contains("max of its size is 1.8")), "{:?}", world.hold());
    world.run(300, |_| Some(6.0));
    assert_eq!((world.serving().len(), world.millicpus()), (2, Some(1_000)));
}

/// EL-20: nodes keep a size that they need: 70 % of 1.8 processors is more than 80 % of 1.3.
#[test]
fn nodes_do_not_shrink_to_where_they_would_grow_again() {
    let mut world = World::new({
        let mut site = sized();
        for resource in site.resources.values_mut() {
            if let Kind::Alarm(alarm) = &mut resource.kind
                && alarm.op == Op::Less
            {
                alarm.threshold = 75.0;
            }
        }
        site
    });
    world.run(300, |_| Some(190.0));
    world.run(300, |_| Some(140.0));
    assert_eq!(world.millicpus(), Some(1_800));
    assert!(world.hold().is_some_and(|hold| hold.contains("where the alarm high holds")), "{:?}", world.hold());
}

/// EL-20: a new node has the size of the others; the size of an earlier controller stays, within the bounds of today.
#[test]
fn the_size_outlives_the_controller() {
    let mut scaler = Scaler::new(sized(), ScalerLimits::default(), ActionId(0));
    let now = Now { instant: Instant::from_millis(1), wall: Timestamp::from_millis(1) };
    scaler.handle(now, ScaleInput::Size { group: "brokers".to_owned(), millicpus: 1_500 });
    assert_eq!(scaler.status().groups[0].millicpus, Some(1_500));
    scaler.handle(now, ScaleInput::Size { group: "brokers".to_owned(), millicpus: 9_000 });
    assert_eq!(scaler.status().groups[0].millicpus, Some(1_800));
    let mut other = Scaler::new(site(&["resources.brokers.member.cpu = 1"]), ScalerLimits::default(), ActionId(0));
    other.handle(now, ScaleInput::Size { group: "brokers".to_owned(), millicpus: 1_500 });
    assert_eq!(other.status().groups[0].millicpus, Some(1_000), "no policy changes the size any more");
}

/// The kill switch stops everything but the actions under way.
#[test]
fn while_paused_nothing_begins() {
    let mut world = World::new(site(&[]));
    world.give(ScaleInput::Pause(true));
    world.run(400, |_| Some(500.0));
    assert_eq!(world.serving().len(), 1);
    world.give(ScaleInput::Pause(false));
    world.run(10, |_| Some(500.0));
    assert_eq!(world.serving().len(), 2);
}

/// EL-26: the kill switch also stops replacements; the load balancer is told of the loss at once.
#[test]
fn while_paused_a_lost_node_is_not_replaced() {
    let mut world = World::new(site(&["resources.brokers.min = 2"]));
    world.run(5, |_| Some(100.0));
    world.give(ScaleInput::Pause(true));
    world.give(ScaleInput::Gone { node: "brokers-2".to_owned(), why: "killed".to_owned() });
    world.run(60, |_| Some(100.0));
    assert_eq!(world.serving(), ["brokers-1"]);
    assert_eq!(world.balanced.last().map(Vec::len), Some(1));
    world.give(ScaleInput::Pause(false));
    world.run(3, |_| Some(100.0));
    assert_eq!(world.serving(), ["brokers-1", "brokers-2"]);
}

/// Actions per hour are bounded whatever the policies want.
#[test]
fn no_more_actions_in_an_hour_than_allowed() {
    let mut world = World::new(site(&["max_actions_per_hour = 1"]));
    world.run(900, |_| Some(500.0));
    assert_eq!(world.serving().len(), 2);
    assert_eq!(world.scaler.status().actions_left, 0);
}

/// EL-19: a rule on connections works like one on CPU; EL-24: the new node is given clients.
#[test]
fn the_new_node_is_relieving_the_others_when_all_serve() {
    let mut scaler = Scaler::new(
        site(&["resources.high.metric = connections", "resources.high.period = 2s"]),
        ScalerLimits::default(),
        ActionId(7),
    );
    let mut acts = Vec::new();
    for tenth in 0..100_u64 {
        let now = Now { instant: Instant::from_millis(tenth * 100), wall: Timestamp::from_millis(tenth * 100) };
        scaler
            .handle(now, ScaleInput::Sample { node: "brokers-1".to_owned(), metric: Metric::Connections, value: 90.0 });
        scaler.handle_timeout(now);
        while let Some(output) = scaler.poll_output() {
            if let ScaleOutput::Act(action) = output {
                assert!(action.id > ActionId(7), "numbers of an earlier controller come back");
                scaler.handle(now, ScaleInput::Done(action.id));
                acts.push(action.kind.to_string());
            }
        }
    }
    assert_eq!(acts, ["create brokers-1", "provide lb", "create brokers-2", "move clients to brokers-2"]);
}

/// The machine asks again, under the same number, for an action that was not answered; a second answer means nothing.
#[test]
fn an_action_without_an_answer_is_asked_for_again() {
    let mut scaler = Scaler::new(site(&[]), ScalerLimits::default(), ActionId(0));
    let mut asked = Vec::new();
    for second in 0..100 {
        scaler.handle_timeout(Now { instant: Instant::from_millis(second * 1_000), wall: Timestamp::default() });
        while let Some(output) = scaler.poll_output() {
            if let ScaleOutput::Act(action) = output {
                asked.push((second, action.id));
            }
        }
    }
    assert_eq!(asked, [(0, ActionId(1)), (60, ActionId(1))]);
    let late = Now { instant: Instant::from_millis(100_000), wall: Timestamp::default() };
    scaler.handle(late, ScaleInput::Done(ActionId(1)));
    scaler.handle(late, ScaleInput::Done(ActionId(1)));
    assert_eq!(scaler.status().groups[0].members.len(), 1);
    let started = std::iter::from_fn(|| scaler.poll_output());
    let started =
        started.filter(|output| matches!(output, ScaleOutput::Event(event) if event.kind == EventKind::Started));
    assert_eq!(started.count(), 1);
}
