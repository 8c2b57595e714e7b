//! Numbers of the ownerships of a client id (MQ-11). The highest one counts.
//!
//! Claims and owners that go on have even ones, successors of nodes that are gone odd ones in between: so an owner that lives after
//! all knows a successor, which only has a copy, from a node to which the client has gone.

/// How far a claim is above everything before it; a power of two. Half as many successions fit in between.
const STEP: u64 = 16;

/// Of a claim. Wall-clock milliseconds where these are ahead, so that an epoch granted by a home that knew nothing of earlier ones is
/// later than theirs all the same.
pub(in crate::node) const fn claimed(known: u64, wall_millis: u64) -> u64 {
    let least = known.saturating_add(STEP);
    let epoch = if wall_millis > least { wall_millis } else { least };
    epoch.saturating_add(epoch % 2)
}

/// Of a successor: later than the former owner's, should that one live after all; earlier than any claim.
pub(in crate::node) const fn inherited(former: u64) -> u64 {
    (former + 1) | 1
}

/// Of an owner that lives after all, later than its successor's.
pub(in crate::node) const fn kept(successor: u64) -> u64 {
    successor + 1 + (successor + 1) % 2
}

/// The least one that a claim can have that comes after `epoch`, whether that is a claim's or a successor's.
pub(in crate::node) const fn next_claim(epoch: u64) -> u64 {
    epoch.saturating_add(STEP)
}

/// The epoch from which on an owner knows better than an owner of `epoch` which flows the client is in the middle of. The client never was
/// at a successor, which knows of the flows only what there was under the claim before.
pub(in crate::node) const fn outdated_from(epoch: u64) -> u64 {
    if epoch.is_multiple_of(2) { next_claim(epoch) } else { epoch.saturating_sub(STEP - 1) }
}

/// Of one of two owners that had the same. One of two successors stays one: the owner that they succeed may live after all.
pub(in crate::node) const fn after_tie(epoch: u64) -> u64 {
    epoch + 2
}

/// Whether `epoch` is that of a successor of the owner whose epoch is `own`.
pub(in crate::node) const fn succeeds(epoch: u64, own: u64) -> bool {
    !epoch.is_multiple_of(2) && epoch > own && epoch - own < STEP
}

/// Whether `own` is that of an owner that lives after all, and goes on although it was succeeded under `epoch`. Claims are further above.
pub(in crate::node) const fn outlives(own: u64, epoch: u64) -> bool {
    !epoch.is_multiple_of(2) && own.is_multiple_of(2) && own > epoch && own - epoch < STEP / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-11, FT-31
    #[test]
    fn a_successor_comes_after_its_node_and_before_any_claim() {
        for known in [0, 1, 100, 101] {
            let claim = claimed(known, 50);
            assert!(claim > known && claim.is_multiple_of(2));
            let successor = inherited(claim);
            assert!(succeeds(successor, claim) && succeeds(inherited(successor), claim));
            let owner = kept(successor);
            assert!(owner > successor && succeeds(inherited(owner), owner));
            assert!(outlives(owner, successor) && !outlives(claim, successor) && !outlives(owner, claim));
            let later = claimed(claim, 0);
            assert!(!outlives(later, successor));
            assert!(later > kept(inherited(owner)));
            assert!(claim < outdated_from(owner) && later >= outdated_from(claim));
            assert!(claim >= outdated_from(inherited(owner)) && claim - STEP < outdated_from(successor));
            assert!(!succeeds(later, claim) && !succeeds(inherited(later), claim) && !succeeds(owner, claim));
        }
        assert_eq!(claimed(100, 1_001), 1_002);
    }
}
