//! Clusters of memberships whose datagrams are moved by hand.

mod net;

use net::{Net, Told, addr, config};
use sedge_base::{Duration, Incarnation, Instant, NodeId, Rng};
use sedge_membership::{Config, DownCause, Input, Member, Membership};

fn suspect(node: u64) -> Input {
    Input::Suspect { node: NodeId::new(node) }
}

fn refused(node: u64) -> Input {
    Input::Refused { node: NodeId::new(node) }
}

/// FT-06
#[test]
fn five_nodes_with_one_contact_address_all_list_five() {
    for seed in 0..50 {
        let mut net = Net::new(seed);
        for node in 1..=5 {
            net.start(node, node, 1, &config(&[1]));
        }
        let took = net.run_until(Duration::from_secs(10), Net::complete);
        assert!(took < Duration::from_secs(1), "seed {seed}: {took:?} {:?}", net.views());
    }
}

/// FT-06
#[test]
fn a_seed_that_starts_late_is_asked_until_it_answers() {
    let mut net = Net::new(1);
    net.start(2, 2, 1, &config(&[1, 2]));
    net.start(3, 3, 1, &config(&[1, 3]));
    net.run(Duration::from_mins(2));
    assert_eq!(net.nodes[&2].unreached_seeds().collect::<Vec<_>>(), [addr(1)]);
    net.start(1, 1, 1, &config(&[1]));
    net.run(Duration::from_secs(7));
    assert!(net.complete(), "{:?}", net.views());
    assert_eq!(net.nodes[&2].unreached_seeds().count(), 0);
}

/// EL-02: an address that discovery finds is asked until it answers, and not any more once it is not found.
#[test]
fn seeds_that_change_are_followed() {
    let mut net = Net::new(1);
    net.start(1, 1, 1, &Config::default());
    net.start(2, 2, 1, &config(&[7]));
    net.run(Duration::from_secs(2));
    net.input(2, Input::Seeds(vec![addr(8), addr(2)]));
    net.run(Duration::from_secs(1));
    assert_eq!(net.nodes[&2].unreached_seeds().collect::<Vec<_>>(), [addr(8)]);
    net.sent_to.clear();
    net.run(Duration::from_secs(20));
    assert_eq!(
        net.sent_to.iter().copied().collect::<Vec<_>>(),
        [addr(8)],
        "what is left out is not asked, a node not by itself"
    );
    net.input(2, Input::Seeds(vec![addr(8), addr(1)]));
    net.run(Duration::from_millis(100));
    assert!(net.complete(), "{:?}", net.views());
    // A node does not ask a seed that it knows to be a member.
    net.input(1, Input::Seeds(vec![addr(2)]));
    assert_eq!(net.nodes[&1].unreached_seeds().count(), 0);
    net.kill(2);
    net.run(Duration::from_secs(5));
    assert_eq!(net.nodes[&1].unreached_seeds().collect::<Vec<_>>(), [addr(2)], "but when it is dead");
    // Node 2 comes back under another address, which its seed's name leads to.
    net.start(2, 9, 2, &Config::default());
    net.input(1, Input::Seeds(vec![addr(9)]));
    net.run(Duration::from_millis(100));
    assert!(net.complete(), "{:?}", net.views());
}

/// A seed is any name for a node, also for the node itself; only the way to it counts.
#[test]
fn an_announcement_is_for_whoever_listens_at_the_address() {
    let mut net = Net::new(1);
    net.start(1, 1, 1, &Config::default());
    net.start(2, 2, 1, &Config::default());
    net.input(1, Input::Seeds(vec![addr(2)]));
    net.run(Duration::from_millis(100));
    assert!(net.complete());
}

/// FT-07, also if a machine between them refuses connections in the other's name.
#[test]
fn two_nodes_that_only_cannot_reach_each_other_stay_alive() {
    for seed in 0..8 {
        let mut net = Net::cluster(seed, 5);
        net.split(&[1], &[2]);
        for round in 0..10 {
            let evidence = if round % 2 == 0 { suspect } else { refused };
            net.input(1, evidence(2));
            net.input(2, evidence(1));
            net.run(Duration::from_secs(6));
        }
        assert_eq!(net.told, [], "seed {seed}");
    }
}

#[test]
fn a_killed_process_whose_links_close_is_known_at_once() {
    for seed in 0..50 {
        let mut net = Net::cluster(seed, 4);
        let start = net.now;
        net.kill(4);
        for node in 1..=3 {
            net.input(node, suspect(4));
        }
        net.run(Duration::from_secs(1));
        let known = net.when(start, &Told::Down(4, DownCause::Dead));
        assert_eq!(known.len(), 3, "{known:?}");
        assert!(known.iter().all(|(_, millis)| *millis <= 160), "{known:?}");
        assert_eq!(net.told.len(), 3);
    }
}

#[test]
fn a_process_whose_host_refuses_connections_is_dead_within_milliseconds() {
    for seed in 0..50 {
        for suspected_first in [false, true] {
            let mut net = Net::cluster(seed, 4);
            let start = net.now;
            net.kill(4);
            for node in 1..=3 {
                if suspected_first {
                    net.input(node, suspect(4));
                }
                net.input(node, refused(4));
            }
            net.run(Duration::from_secs(1));
            let known = net.when(start, &Told::Down(4, DownCause::Dead));
            assert_eq!(known.len(), 3, "{known:?}");
            assert!(known.iter().all(|(_, millis)| *millis <= 20), "{known:?}");
        }
    }
}

#[test]
fn a_closed_link_alone_kills_nobody() {
    let mut net = Net::cluster(3, 4);
    for _ in 0..50 {
        net.input(1, suspect(2));
        net.input(1, refused(3));
        net.input(1, suspect(99));
        net.run(Duration::from_millis(300));
    }
    assert_eq!(net.told, []);
}

/// FT-08
#[test]
fn a_silent_host_is_known_soon() {
    for count in [2, 3, 5, 9] {
        let mut times = Vec::new();
        for seed in 0..40 {
            let mut net = Net::cluster(seed, count);
            let start = net.now;
            net.kill(count);
            net.run(Duration::from_secs(6));
            let known = net.when(start, &Told::Down(count, DownCause::Dead));
            assert_eq!(known.len() as u64, count - 1, "seed {seed}");
            assert_eq!(net.told.len(), known.len(), "seed {seed}");
            times.extend(known.iter().map(|(_, millis)| *millis));
        }
        times.sort_unstable();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{count} nodes: median {median} ms, p99 {} ms, worst {worst} ms", times[times.len() * 99 / 100]);
        assert!(median <= 1_500 && worst <= 2_500, "{count} nodes: median {median} ms, worst {worst} ms");
    }
}

/// FT-08, FT-31
#[test]
fn a_paused_process_comes_back_by_itself() {
    let mut net = Net::cluster(5, 3);
    let paused = net.nodes.remove(&3).unwrap();
    net.run(Duration::from_secs(5));
    assert!(net.complete());
    net.nodes.insert(3, paused);
    let took = net.run_until(Duration::from_secs(10), Net::complete);
    assert!(took < Duration::from_secs(3), "{took:?} {:?}", net.views());
    assert!(net.told.iter().any(|(_, node, told)| *node == 3 && matches!(told, Told::Rejoined(_))));
    net.run(Duration::from_secs(20));
    assert!(net.complete());
}

/// FT-29
#[test]
fn a_restarted_node_replaces_its_earlier_life() {
    for down_for in [0, 5] {
        let mut net = Net::cluster(7, 4);
        let start = net.now;
        net.kill(2);
        net.run(Duration::from_secs(down_for));
        net.start(2, 2, 2, &config(&[1]));
        let took = net.run_until(Duration::from_secs(10), Net::complete);
        assert!(took < Duration::from_secs(1), "{took:?} {:?}", net.views());
        let cause = if down_for == 0 { DownCause::Restarted } else { DownCause::Dead };
        assert_eq!(net.when(start, &Told::Down(2, cause)).len(), 3);
        assert_eq!(net.when(start, &Told::Up(2, 2)).len(), 3);
    }
}

/// FT-29
#[test]
fn a_node_that_returns_under_another_address_replaces_itself() {
    let mut net = Net::cluster(7, 4);
    let start = net.now;
    net.start(2, 20, 2, &config(&[1]));
    net.run(Duration::from_secs(1));
    assert!(net.complete(), "{:?}", net.views());
    assert_eq!(net.nodes[&3].member(NodeId::new(2)).unwrap().swim, addr(20));
    assert_eq!(net.when(start, &Told::Down(2, DownCause::Restarted)).len(), 3);
}

/// FT-29: without a data directory a node has a new id at every start.
#[test]
fn another_node_may_take_the_address_of_a_dead_one() {
    let mut net = Net::cluster(7, 4);
    net.kill(1);
    net.start(9, 1, 5, &config(&[1]));
    let took = net.run_until(Duration::from_secs(10), Net::complete);
    assert!(took < Duration::from_secs(8), "{took:?} {:?}", net.views());
}

#[test]
fn a_seed_that_has_left_is_asked_again_for_another_may_take_its_place() {
    let mut net = Net::cluster(7, 4);
    net.input(1, Input::Leave);
    net.run(Duration::from_secs(1));
    net.kill(1);
    assert_eq!(net.nodes[&2].unreached_seeds().collect::<Vec<_>>(), [addr(1)]);
    net.start(9, 1, 5, &config(&[1]));
    let took = net.run_until(Duration::from_secs(10), Net::complete);
    assert!(took < Duration::from_secs(6), "{took:?} {:?}", net.views());
}

#[test]
fn a_node_that_leaves_is_known_to_have_left() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 5);
        let start = net.now;
        net.input(3, Input::Leave);
        net.run(Duration::from_millis(50));
        assert_eq!(net.nodes[&3].poll_timeout(), None);
        net.kill(3);
        for node in [1, 2, 4, 5] {
            net.input(node, suspect(3));
        }
        net.run(Duration::from_secs(10));
        assert!(net.complete(), "{:?}", net.views());
        let left = net.when(start, &Told::Down(3, DownCause::Left));
        assert_eq!((left.len(), net.told.len()), (4, 4), "{:?}", net.told);
        net.kill(5);
        net.run(Duration::from_secs(5));
        net.sent_to.clear();
        net.run(Duration::from_secs(10));
        assert!(net.sent_to.contains(&addr(5)) && !net.sent_to.contains(&addr(3)), "the dead are called, not who left");
        net.start(3, 3, 2, &config(&[1]));
        net.run(Duration::from_secs(1));
        assert!(net.complete(), "{:?}", net.views());
    }
}

/// FT-31
#[test]
fn a_healed_partition_becomes_one_cluster_again() {
    for (left, right) in [(vec![1], vec![2]), (vec![1], vec![2, 3, 4]), (vec![1, 2, 3], vec![4, 5, 6])] {
        for seed in 0..6 {
            let count = (left.len() + right.len()) as u64;
            let mut net = Net::cluster(seed, count);
            net.split(&left, &right);
            net.run(Duration::from_mins(1));
            for (node, view) in net.views() {
                let side = if left.contains(&node) { &left } else { &right };
                assert_eq!(view.iter().map(|(node, _)| *node).collect::<Vec<_>>(), **side);
            }
            net.blocked.clear();
            let took = net.run_until(Duration::from_secs(30), Net::complete);
            assert!(took < Duration::from_secs(5), "seed {seed}: {took:?} {:?}", net.views());
            net.told.clear();
            net.run(Duration::from_secs(30));
            assert!(net.complete() && net.told.is_empty(), "seed {seed}: {:?}", net.told);
        }
    }
}

#[test]
fn loss_neither_kills_nor_hides_anyone_for_long() {
    for seed in 0..8 {
        let mut net = Net::new(seed);
        net.loss = 200;
        for node in 1..=6 {
            net.start(node, node, 1, &config(&[1, 2]));
        }
        let took = net.run_until(Duration::from_secs(20), Net::complete);
        assert!(took < Duration::from_secs(10), "seed {seed}: {took:?}");
        net.told.clear();
        net.run(Duration::from_mins(2));
        assert_eq!(net.told, [], "seed {seed}: wrong verdicts in 2 minutes at 20 % loss");
        net.loss = 0;
        let took = net.run_until(Duration::from_secs(20), Net::complete);
        assert!(took < Duration::from_secs(5), "seed {seed}: {took:?} {:?}", net.views());
    }
}

#[test]
fn a_twin_with_a_lower_incarnation_is_told_and_does_no_harm() {
    for seeds in [&[1][..], &[]] {
        let mut net = Net::cluster(2, 3);
        // Its id is 3 as well, on another host; the harness knows it as 30.
        net.start(30, 30, 0, &config(seeds));
        let twin = Member::new(NodeId::new(3), Incarnation::new(0), addr(30), addr(30));
        net.nodes.insert(30, Membership::new(&config(seeds), twin, Rng::new(9)).unwrap());
        net.input(30, Input::Seeds(vec![addr(1)]));
        let before = net.sent;
        net.run(Duration::from_mins(1));
        assert_eq!(net.when(Instant::ZERO, &Told::Outranked).len(), 1, "{:?}", net.told);
        assert!(net.nodes[&1].member(NodeId::new(3)).is_some_and(|member| member.swim == addr(3)));
        assert!(net.sent - before < 60 * 100, "{} datagrams in a minute", net.sent - before);
        assert!(net.told.iter().all(|(_, node, _)| *node == 30), "{:?}", net.told);
    }
}

/// EL-03: a node that died is listed for a while; a node that left, or is back, is not.
#[test]
fn the_dead_vanish_after_a_while() {
    let autoclean = Duration::from_secs(30);
    let mut net = Net::new(5);
    for node in 1..=4 {
        net.start(node, node, 1, &Config { autoclean, ..config(&[1]) });
    }
    net.run(Duration::from_secs(5));
    let dead =
        |net: &Net, node: u64| -> Vec<u64> { net.nodes[&node].dead().map(|(dead, _)| dead.node.get()).collect() };
    assert_eq!((dead(&net, 1), net.nodes[&1].cleaned()), (vec![], 0));
    net.input(4, Input::Leave);
    net.run(Duration::from_millis(10));
    net.kill(4);
    net.kill(2);
    net.kill(3);
    let start = net.now;
    net.run(Duration::from_secs(5));
    assert_eq!(dead(&net, 1), [2, 3], "4 has left");
    let (_, died) = net.nodes[&1].dead().next().expect("a dead one");
    assert!(died > start && died < net.now);
    // It comes back in the next life, not knowing anybody: it is called.
    net.start(2, 2, 2, &Config { autoclean, ..Config::default() });
    net.run(Duration::from_secs(5));
    assert_eq!(dead(&net, 1), [3]);
    net.run_until(Duration::from_secs(30), |net| net.nodes[&1].dead().next().is_none());
    let took = net.now.since(start);
    assert!(took >= autoclean && took < autoclean + Duration::from_secs(4), "{took:?}");
    assert_eq!(net.nodes[&1].cleaned(), 1);
    // But it is still called.
    net.start(3, 3, 2, &Config { autoclean, ..Config::default() });
    net.run(Duration::from_secs(5));
    assert!(net.complete(), "{:?}", net.views());
}

/// FT-31
#[test]
fn two_lonely_nodes_find_each_other_and_then_are_quiet() {
    let mut net = Net::new(3);
    net.start(1, 1, 1, &Config::default());
    net.start(2, 2, 1, &Config::default());
    net.input(2, Input::Seeds(vec![addr(1)]));
    net.run(Duration::from_secs(1));
    net.input(2, Input::Seeds(Vec::new()));
    net.run(Duration::from_mins(1));
    let in_a_minute = net.sent;
    net.split(&[1], &[2]);
    net.run(Duration::from_mins(20));
    net.blocked.clear();
    let took = net.run_until(Duration::from_secs(10), Net::complete);
    assert!(took < Duration::from_millis(1_050), "{took:?}");
    let before = net.sent;
    net.run(Duration::from_mins(1));
    assert!(net.sent - before < in_a_minute + 50, "{} instead of {in_a_minute}", net.sent - before);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let mut net = Net::new(seed);
        net.loss = 100;
        for node in 1..=5 {
            net.start(node, node, 1, &config(&[1]));
        }
        net.run(Duration::from_secs(10));
        net.kill(2);
        net.run(Duration::from_secs(10));
        (net.sent, net.told)
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn strangers_cannot_fill_the_memory() {
    let mut net = Net::new(1);
    net.start(1, 1, 1, &Config { max_members: 3, ..Config::default() });
    for node in 2..=9 {
        net.start(node, node, 1, &config(&[1]));
    }
    net.run(Duration::from_secs(5));
    assert_eq!(net.nodes[&1].members().len(), 3);
    assert!(net.nodes[&1].rejected() > 0);
}

/// FT-07: loss in a busy or bad network is no death, not even with nobody else to ask; and a node that has objected to a suspicion is left
/// in peace.
#[test]
fn moderate_loss_kills_nobody() {
    for (count, loss) in [(2, 50), (2, 100), (3, 50), (3, 100), (5, 100), (9, 100)] {
        for seed in 0..20 {
            let mut net = Net::cluster(seed, count);
            net.loss = loss;
            net.run(Duration::from_mins(5));
            assert_eq!(net.told, [], "{count} nodes, {loss} of 1000 lost, seed {seed}");
        }
    }
}

/// FT-07: a busy node is not a dead node. Nodes that get a processor only now and then are patient with each other, and soon as alert
/// as before when they get one again.
#[test]
fn starved_nodes_do_not_kill_each_other() {
    for (count, pause) in [(2, 500), (3, 500), (3, 1_000), (3, 1_500), (5, 1_500)] {
        for seed in 0..10 {
            let mut net = Net::cluster(seed, count);
            net.starved = pause;
            net.loss = 10;
            net.run(Duration::from_mins(2));
            assert_eq!(net.told, [], "{count} nodes, up to {pause} ms late, seed {seed}");
            net.starved = 0;
            net.loss = 0;
            net.run(Duration::from_secs(12));
            let start = net.now;
            net.kill(count);
            net.run(Duration::from_secs(6));
            let known = net.when(start, &Told::Down(count, DownCause::Dead));
            assert_eq!(known.len() as u64, count - 1, "seed {seed}");
            assert!(known.iter().all(|(_, millis)| *millis <= 2_500), "{known:?}");
        }
    }
}

/// FT-07, FT-31: a node that was cut off says of all others that they are dead. Those who hear them know better.
#[test]
fn who_comes_back_takes_nobody_along() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 4);
        net.split(&[1, 2, 3], &[4]);
        let run = |net: &mut Net, rounds: u32| {
            for _ in 0..rounds {
                for (node, other) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
                    net.heard(node, other);
                }
                net.run(Duration::from_millis(100));
            }
        };
        run(&mut net, 50);
        net.told.clear();
        net.blocked.clear();
        run(&mut net, 100);
        let among = |told: &&(Instant, u64, Told)| told.1 <= 3 && matches!(told.2, Told::Down(1..=3, _));
        assert_eq!(net.told.iter().filter(among).count(), 0, "seed {seed}: {:?}", net.told);
    }
}

/// FT-07: a member whose link carries something lives, whatever becomes of its datagrams.
#[test]
fn a_member_that_is_heard_over_its_link_is_not_dead() {
    let mut net = Net::cluster(1, 2);
    net.loss = 1_000;
    for _ in 0..100 {
        net.heard(1, 2);
        net.heard(2, 1);
        net.run(Duration::from_millis(300));
    }
    assert_eq!(net.told, []);
    net.run(Duration::from_secs(3));
    assert_eq!(net.told.len(), 2, "{:?}", net.told);
}

/// FT-07: gossip tells of a suspicion a few times only, and the suspect has missed them all.
#[test]
fn a_suspect_that_is_heard_over_its_link_is_told_of_the_suspicion() {
    for seed in 0..20 {
        let mut net = Net::cluster(seed, 2);
        net.loss = 1_000;
        let has_suspects = |net: &Net| net.nodes.values().any(Membership::has_suspects);
        for lost in [true, false] {
            for _ in 0..100 {
                net.heard(1, 2);
                net.heard(2, 1);
                net.run(Duration::from_millis(100));
            }
            assert_eq!(has_suspects(&net), lost, "seed {seed}");
            net.loss = 0;
        }
        assert_eq!(net.told, []);
    }
}

/// FT-07: its link was closed, and has begun anew before it was known whether it lives.
#[test]
fn a_member_whose_link_begins_anew_is_not_dead() {
    for is_back in [true, false] {
        let mut net = Net::cluster(1, 2);
        net.loss = 1_000;
        net.heard(1, 2);
        net.input(1, suspect(2));
        net.run(Duration::from_millis(10));
        if is_back {
            net.heard(1, 2);
        }
        net.run(Duration::from_millis(300));
        assert_eq!(net.told.is_empty(), is_back, "{:?}", net.told);
    }
}
