//! Dependencies of resources: references between them, their cycles and their order (EL-08).

use std::collections::{BTreeMap, BTreeSet};

use super::model::Site;

/// A cycle among `needs`, each name once, if there is one.
pub(super) fn cycle(needs: &BTreeMap<String, Vec<String>>) -> Option<Vec<String>> {
    let mut finished = BTreeSet::new();
    needs.keys().find_map(|name| follow(needs, name, &mut Vec::new(), &mut finished))
}

fn follow<'a>(
    needs: &'a BTreeMap<String, Vec<String>>,
    name: &'a String,
    path: &mut Vec<&'a String>,
    finished: &mut BTreeSet<&'a String>,
) -> Option<Vec<String>> {
    if let Some(at) = path.iter().position(|seen| *seen == name) {
        return Some(path.iter().skip(at).map(|name| (*name).clone()).collect());
    }
    if finished.contains(name) {
        return None;
    }
    path.push(name);
    let found = needs.get(name).into_iter().flatten().find_map(|next| follow(needs, next, path, finished));
    path.pop();
    finished.insert(name);
    found
}

/// The resources in an order in which each comes after all that it needs; those of one wave do not need each other.
pub fn waves(site: &Site) -> Vec<Vec<String>> {
    let mut left: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (name, resource) in &site.resources {
        left.insert(name, resource.needs.iter().filter(|need| site.resources.contains_key(*need)).collect());
    }
    let mut waves = Vec::new();
    while !left.is_empty() {
        let free: BTreeSet<&String> =
            left.iter().filter(|(_, needs)| needs.is_empty()).map(|(name, _)| *name).collect();
        if free.is_empty() {
            break;
        }
        left.retain(|name, _| !free.contains(name));
        for needs in left.values_mut() {
            needs.retain(|need| !free.contains(need));
        }
        waves.push(free.into_iter().cloned().collect());
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(pairs: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        pairs
            .iter()
            .map(|(name, needs)| ((*name).to_owned(), needs.iter().map(|need| (*need).to_owned()).collect()))
            .collect()
    }

    /// EL-08
    #[test]
    fn a_cycle_is_found_wherever_it_begins() {
        assert_eq!(cycle(&needs(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])), None);
        assert_eq!(
            cycle(&needs(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])),
            Some(vec!["b".to_owned(), "c".to_owned()])
        );
        assert_eq!(cycle(&needs(&[("a", &["a"])])), Some(vec!["a".to_owned()]));
        assert_eq!(cycle(&needs(&[("a", &["c", "b"]), ("b", &["c"]), ("c", &[])])), None, "a diamond is no cycle");
    }
}
