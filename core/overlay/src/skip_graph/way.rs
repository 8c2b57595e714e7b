//! The way of a publication whose destinations are known one by one (ADR 0011).

use sedge_base::NodeId;

use super::{Key, Node, Role, Side, Topic};

impl<T: Topic> Node<T> {
    /// Over which node a publication to `topic` goes from here to `destination`, who subscribes to it; none if this node has no part in
    /// the topic or knows nobody on the way.
    ///
    /// A node that subscribes goes as far towards the destination as it can without going beyond it. These are the parts that
    /// [`super::Method::Sfb`] makes: each neighbour in the range gets what lies between itself and the next one farther out. A node that only
    /// publishes goes to the farthest subscriber it knows, or another publisher nearer to them, as a range query does that comes
    /// from outside of its range.
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
}
