//! Split-forward broadcasting against multi-range forwarding (SG-24, SG-25).

use sedge_overlay::skip_graph::{Method, Vector};

use crate::Options;
use crate::report::section;
use crate::stats::{Mean, real};
use crate::world::{Part, World, resting, topic};

/// Mean hops over all subscribers, the publisher itself with none, and subscribers by hops.
fn spread(world: &mut World, method: Method) -> (f64, Vec<usize>) {
    world.set_method(method);
    let mut depths = vec![1];
    world.publish(0, topic(0), |copy| {
        let hops = usize::from(copy.hops);
        if copy.deliver {
            depths.resize(depths.len().max(hops + 1), 0);
            depths[hops] += 1;
        }
    });
    assert_eq!(depths.iter().sum::<usize>(), world.len(), "a publication missed subscribers");
    let sum: usize = depths.iter().enumerate().map(|(hops, count)| hops * count).sum();
    (real(sum) / real(world.len()), depths)
}

/// Subscribers of one topic; the left-most one publishes.
pub(crate) fn subscribers(count: usize, ideal: bool, seed: u64) -> World {
    let mut world = World::with_vectors(count, resting(), seed, |position, rng| {
        if ideal { Vector::ideal(position, resting().base) } else { Vector::random(rng) }
    });
    for node in 0..count {
        world.take_part(node, topic(0), Part::Subscriber);
    }
    world.join_all();
    world
}

pub(crate) fn run(options: &Options) -> String {
    let sizes: &[(u32, usize)] =
        if options.quick { &[(3, 20), (6, 10), (10, 3)] } else { &[(3, 200), (6, 50), (10, 20), (14, 5), (17, 2)] };
    let (mut rows, mut depths) = (Vec::new(), String::new());
    for (log, graphs) in sizes {
        let count = 1_usize << log;
        let mut world = subscribers(count, true, options.seed);
        let (mrf, by_mrf) = spread(&mut world, Method::Mrf);
        let (sfb, by_sfb) = spread(&mut world, Method::Sfb);
        if *log == 3 {
            depths = format!(
                "With 8 subscribers and ideal vectors there are, by hops, {by_sfb:?} with SFB and {by_mrf:?} with MRF; source: 1, 3, 3, 1 and 1, 1, 2, 4."
            );
        }
        let (mut random_mrf, mut random_sfb) = (Mean::default(), Mean::default());
        for number in 0..*graphs {
            let mut world = subscribers(count, false, options.seed + number as u64);
            random_mrf.add(spread(&mut world, Method::Mrf).0);
            random_sfb.add(spread(&mut world, Method::Sfb).0);
        }
        let log = f64::from(*log);
        rows.push(vec![
            count.to_string(),
            format!("{sfb:.3}"),
            format!("{:.3}", log / 2.0),
            format!("{mrf:.6}"),
            format!("{:.6}", log - 1.0 + 1.0 / real(count)),
            format!("{:.3}", sfb / mrf),
            format!("{:.2}", random_sfb.get()),
            format!("{:.2}", random_mrf.get()),
            format!("{:.3}", random_sfb.get() / random_mrf.get()),
        ]);
    }
    let remarks = format!(
        "Mean hops over all subscribers of a topic when the left-most one publishes. {depths} The specification's own simulation found ratios from 0.63 to \
         0.68 with random vectors."
    );
    let head = [
        "Subscribers",
        "SFB, ideal",
        "formula",
        "MRF, ideal",
        "formula",
        "ratio",
        "SFB, random",
        "MRF, random",
        "ratio",
    ];
    section("Hops with split-forward broadcasting (figures 4.5 and 4.6)", &head, &rows, &remarks)
}
