//! The order of publication.

use std::collections::BTreeMap;

use sedge_mqtt::{Message, MessageId};

use crate::SessionState;

/// Puts what each node's shard has published into the order in which it entered the cluster there, and leaves the places that each shard's
/// messages have as they are. Returns whether anything moved.
pub(crate) fn restore_order<T>(items: &mut [Option<T>], message: impl Fn(&T) -> &Message) -> bool {
    let mut places = BTreeMap::<_, Vec<usize>>::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(MessageId { node, incarnation, shard, .. }) = item.as_ref().map(|item| message(item).id) {
            places.entry((node, incarnation, shard)).or_default().push(place);
        }
    }
    let mut moved = false;
    for places in places.into_values() {
        let mut of_shard: Vec<_> = places.iter().filter_map(|place| items.get_mut(*place)?.take()).collect();
        moved |= !of_shard.is_sorted_by_key(|item| message(item).id.seq);
        of_shard.sort_by_key(|item| message(item).id.seq);
        for (place, item) in places.into_iter().zip(of_shard) {
            if let Some(slot) = items.get_mut(place) {
                *slot = Some(item);
            }
        }
    }
    moved
}

impl SessionState {
    /// Puts what waits into the order of publication, as far as it comes from the same shard.
    pub fn restore_order(&mut self) {
        let mut items: Vec<_> = self.queue.drain(..).map(Some).collect();
        restore_order(&mut items, |queued| &queued.message);
        self.queue = items.into_iter().flatten().collect();
    }
}
