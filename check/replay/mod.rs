//! Replays the corpus of a fuzz target, and mutations of it, on a stable compiler. Tests of the crates that have targets include it by its
//! path, because no crate of `core/` may use one outside.

use std::path::Path;

use sedge_base::Rng;

/// The inputs of a corpus by their names, in order.
pub(crate) fn corpus(krate: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(krate).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.into_iter().map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect()
}

/// Runs a body over its corpus, then over this many mutations of it, the same each time.
pub(crate) fn replay(krate: &str, target: &str, mutations: u32, body: fn(&[u8])) {
    let corpus = corpus(krate, target);
    for (name, data) in &corpus {
        println!("{name}");
        body(data);
    }
    let mut rng = Rng::new(1);
    for number in 0..mutations {
        let (name, data) = rng.pick(&corpus).unwrap();
        let (_, other) = rng.pick(&corpus).unwrap();
        let data = mutated(&mut rng, data.clone(), other);
        println!("{number} of {name}: {:02x?}", &data[..data.len().min(1_000)]);
        body(&data);
    }
}

fn mutated(rng: &mut Rng, mut data: Vec<u8>, other: &[u8]) -> Vec<u8> {
    for _ in 0..=rng.index(3) {
        let at = rng.index(data.len());
        let end = (at + 1 + rng.index(8)).min(data.len());
        match rng.index(8) {
            0 => data.truncate(at),
            1 => drop(data.drain(at..end)),
            2 => drop(data.splice(at..at, data[at..end].to_vec())),
            3 => data.extend_from_slice(&other[rng.index(other.len())..]),
            4 => data[at..end].fill(0xff),
            5 => data[at] = *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, b'0', b' ']).unwrap(),
            6 => data[at] = data[at].wrapping_add(1),
            _ => data[at] ^= 1 << rng.index(8),
        }
        if data.is_empty() {
            break;
        }
    }
    data
}
