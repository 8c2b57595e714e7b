//! The way of a publication whose destinations are known one by one (ADR 0011).

use sedge_base::NodeId;

use super::{Key, Node, Role, Side, Topic};

/// Receivers to which a subscriber hands its publications for nodes below and above itself, see [`Node::halves`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    /// The node that gets everything for smaller node ids.
    pub left: Option<NodeId>,
    /// The node that gets everything for larger node ids.
    pub right: Option<NodeId>,
}

impl<T: Topic> Node<T> {
    /// The next node of a publication to `topic` on the way from here to `destination`, which subscribes to the topic; none if this node
    /// has no part in the topic or knows nobody on the way.
    ///
    /// A node that subscribes sends a publication as far towards the destination as it can without going beyond it. These are the parts
    /// that [`super::Method::Sfb`] makes: each neighbour in the range gets the part between itself and the next one farther out. A node
    /// that only publishes sends it to the farthest subscriber it knows, or another publisher nearer to the subscribers, as a range query
    /// does that comes from outside of its range.
    pub fn way(&self, topic: &T, destination: NodeId) -> Option<NodeId> {
        let target = Key::new(topic.clone(), Role::Subscriber, destination);
        let own = Key::new(topic.clone(), Role::Subscriber, self.me);
        if let Some(vnode) = self.vnodes.get(&own) {
            let side = if target > own { Side::Right } else { Side::Left };
            let ahead = vnode.row(side).peers().iter().take_while(|peer| !side.is_nearer(&target, &peer.key));
            return ahead.last().map(|peer| peer.key.node);
        }
        let vnode = self.vnodes.get(&Key::new(topic.clone(), Role::Publisher, self.me))?;
        let end = Key::new(topic.clone(), Role::Subscriber, NodeId::new(u64::MAX));
        vnode.right.peers().iter().take_while(|peer| peer.key <= end).last().map(|peer| peer.key.node)
    }

    /// Over which nodes a publication to `topic` goes from here to destinations between `first` and `last`, all of them subscribers:
    /// the parts that [`super::Method::Mrf`] makes. None if this node does not subscribe.
    ///
    /// The range is cut at the own key, and each half goes whole to the farthest neighbour in it to which there `is_open` a link. The
    /// receiver cuts its half at a key that lies within, and the next one goes no farther than its remaining destinations, so that ranges
    /// only get smaller.
    pub fn halves(
        &self,
        topic: &T,
        (first, last): (NodeId, NodeId),
        is_open: impl Fn(NodeId) -> bool,
    ) -> Option<Halves> {
        let key = |node| Key::new(topic.clone(), Role::Subscriber, node);
        let vnode = self.vnodes.get(&key(self.me))?;
        let farthest = |side: Side, end: &Key<T>| {
            let within = vnode.row(side).peers().iter().take_while(|peer| !side.is_nearer(end, &peer.key));
            within.map(|peer| peer.key.node).filter(|node| is_open(*node)).last()
        };
        Some(Halves { left: farthest(Side::Left, &key(first)), right: farthest(Side::Right, &key(last)) })
    }
}
