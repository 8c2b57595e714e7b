//! Ways to reach everybody in a range that the source compares with (SG-26).

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use sedge_overlay::skip_graph::Method;

use crate::Options;
use crate::hops::subscribers;
use crate::report::section;
use crate::stats::real;
use crate::world::{World, topic};

/// Copies sent, and the sum of the hops after which each node had its first.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    messages: usize,
    hops: usize,
}

/// Along level 0.
fn sequential(world: &World) -> Cost {
    let mut cost = Cost::default();
    let mut at = 0;
    while let Some(next) = world.right_neighbour(at) {
        cost.messages += 1;
        cost.hops += cost.messages;
        at = next;
    }
    cost
}

/// Every node sends the first copy on to all neighbours but the one it came from; with memory, the message lists the nodes that it was
/// sent to on its way, and they are left out.
fn broadcast(world: &World, memory: bool) -> Cost {
    let mut cost = Cost::default();
    let mut reached = vec![false; world.len()];
    let none: Rc<BTreeSet<usize>> = Rc::default();
    let mut queue = VecDeque::from([(0, 0, 0, none)]);
    while let Some((at, from, hops, visited)) = queue.pop_front() {
        if core::mem::replace(&mut reached[at], true) {
            continue;
        }
        cost.hops += hops;
        let mut next = world.neighbours(at);
        next.retain(|node| *node != from && !visited.contains(node));
        let mut listed = visited;
        if memory {
            let list = Rc::make_mut(&mut listed);
            list.insert(at);
            list.extend(&next);
        }
        cost.messages += next.len();
        queue.extend(next.into_iter().map(|node| (node, at, hops + 1, Rc::clone(&listed))));
    }
    assert!(reached.iter().all(|reached| *reached), "a broadcast missed somebody");
    cost
}

fn split(world: &mut World, method: Method) -> Cost {
    world.set_method(method);
    let mut cost = Cost::default();
    world.publish(0, topic(0), |copy| {
        cost.messages += 1;
        cost.hops += usize::from(copy.hops);
    });
    cost
}

pub(crate) fn run(options: &Options) -> String {
    let sizes: &[usize] = if options.quick { &[64, 256] } else { &[64, 1_024, 8_192] };
    let mut rows = Vec::new();
    for count in sizes {
        let mut world = subscribers(*count, false, options.seed);
        let costs = [
            ("sequential", sequential(&world), "O(N) and O(N)"),
            ("broadcast without memory", broadcast(&world, false), "O(N log N) and O(log N)"),
            ("broadcast with memory", broadcast(&world, true), "O(N log N) and O(log N)"),
            ("MRF", split(&mut world, Method::Mrf), "O(N) and O(log N)"),
            ("SFB", split(&mut world, Method::Sfb), "O(N) and O(log N)"),
        ];
        for (name, cost, source) in costs {
            rows.push(vec![
                count.to_string(),
                name.to_owned(),
                cost.messages.to_string(),
                format!("{:.2}", real(cost.messages) / real(*count)),
                format!("{:.2}", real(cost.hops) / real(*count)),
                source.to_owned(),
            ]);
        }
    }
    let head = ["Subscribers", "Method", "Messages", "for each subscriber", "Mean hops", "Source: messages and hops"];
    let remarks = "Random vectors; the left-most subscriber of a topic publishes.";
    section("Other ways to spread a publication", &head, &rows, remarks)
}
