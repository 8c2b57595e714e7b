//! The user properties by which a node describes itself in CONNECT and CONNACK.

use sedge_base::{Incarnation, NodeId};
use sedge_mqtt::{UserProperties, Utf8};

use super::text;
use super::{Hello, Protocol};

/// Stands for no progress.
const NOTHING: &str = "-";
/// The cooperation algorithm of nodes that name none: that of all nodes before there were others.
pub(super) const MESH: &str = "mesh";
/// Most bytes of a cluster name that count.
const MAX_CLUSTER: usize = 255;

/// How far a node has read another's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Life of the sender.
    pub(super) incarnation: Incarnation,
    /// Stream of that life: a sender that had to begin anew counts its streams.
    pub(super) stream: u64,
    /// Last frame taken.
    pub(super) seq: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) hello: Hello,
    pub(super) cluster: String,
    /// Name of the cooperation algorithm.
    pub(super) overlay: String,
    pub(super) protocol: Protocol,
    /// The stream that the frames of this node to the other belong to.
    pub(super) stream: u64,
    /// How far this node has read the other's frames.
    pub(super) received: Option<Progress>,
    /// How many connections the node takes from one neighbour; 1 if it does not say.
    pub(super) connections: u8,
    /// Which of the connections with the other this one is to be; 0: the link itself.
    pub(super) lane: u8,
}

impl Greeting {
    pub(super) fn to_user(&self) -> UserProperties {
        let received = self.received.map_or_else(
            || NOTHING.to_owned(),
            |progress| format!("{} {} {}", progress.incarnation.get(), progress.stream, progress.seq),
        );
        let connections = (self.connections > 1).then(|| ("connections", self.connections.to_string()));
        let lane = (self.lane > 0).then(|| ("lane", self.lane.to_string()));
        let overlay = (self.overlay != MESH).then(|| ("overlay", self.overlay.clone()));
        [
            ("node", self.hello.node.to_string()),
            ("cluster", cluster_name(&self.cluster)),
            ("version", self.protocol.version.to_string()),
            ("since", self.protocol.since.to_string()),
            ("incarnation", self.hello.incarnation.get().to_string()),
            ("capacity", self.hello.capacity.to_string()),
            ("address", self.hello.link_addr.to_string()),
            ("stream", self.stream.to_string()),
            ("received", received),
        ]
        .into_iter()
        .chain(overlay)
        .chain(connections)
        .chain(lane)
        .map(|(name, value)| (Utf8::from_static(name), Utf8::new(&value).unwrap_or_default()))
        .collect()
    }

    /// Reads the properties; those it does not know belong to later versions and are passed over. `Err` names the property
    /// that is missing, there twice, or makes no sense.
    pub(super) fn from_user(user: &UserProperties) -> Result<Self, &'static str> {
        let node = read(user, "node", text::node)?;
        let incarnation = Incarnation::new(read(user, "incarnation", text::number)?);
        let hello = Hello {
            node,
            incarnation,
            capacity: read(user, "capacity", number)?,
            link_addr: read(user, "address", |text| text.parse().ok())?,
        };
        Ok(Self {
            hello,
            cluster: read(user, "cluster", |text| Some(text.to_owned()))?,
            overlay: if user.iter().any(|(name, _)| name == "overlay") {
                read(user, "overlay", |text| Some(text.to_owned()))?
            } else {
                MESH.to_owned()
            },
            protocol: Protocol { version: read(user, "version", number)?, since: read(user, "since", number)? },
            stream: read(user, "stream", text::number)?,
            connections: read_small(user, "connections")?.unwrap_or(1),
            lane: read_small(user, "lane")?.unwrap_or(0),
            received: read(
                user,
                "received",
                |text| if text == NOTHING { Some(None) } else { progress(text).map(Some) },
            )?,
        })
    }

    /// Whether this is a node of the same cluster.
    pub(super) fn is_of(&self, cluster: &str) -> bool {
        self.cluster == cluster_name(cluster)
    }
}

/// The node id that a client identifier stands for.
pub(super) fn node_of(client_id: &Utf8) -> Option<NodeId> {
    text::node(client_id.as_str())
}

fn cluster_name(name: &str) -> String {
    let mut kept = String::new();
    for c in name.chars().filter(|c| *c != '\0') {
        if kept.len() + c.len_utf8() > MAX_CLUSTER {
            break;
        }
        kept.push(c);
    }
    kept
}

fn read<T>(user: &UserProperties, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, &'static str> {
    let mut values = user.iter().filter(|(known, _)| known == name);
    match (values.next(), values.next()) {
        (Some((_, value)), None) => parse(value.as_str()).ok_or(name),
        _ => Err(name),
    }
}

/// A property that may be missing.
fn read_small(user: &UserProperties, name: &'static str) -> Result<Option<u8>, &'static str> {
    let is_there = user.iter().any(|(known, _)| known == name);
    is_there.then(|| read(user, name, |text| u8::try_from(text::number(text)?).ok())).transpose()
}

fn number(text: &str) -> Option<u32> {
    u32::try_from(text::number(text)?).ok()
}

fn progress(text: &str) -> Option<Progress> {
    let mut fields = text::Fields::new(text);
    let incarnation = Incarnation::new(fields.number()?);
    let (stream, seq) = (fields.number()?, fields.number()?);
    fields.is_at_end().then_some(Progress { incarnation, stream, seq })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(received: Option<Progress>) -> Greeting {
        Greeting {
            hello: Hello {
                node: NodeId::new(0xa1),
                incarnation: Incarnation::new(7),
                capacity: 3,
                link_addr: "[::1]:7883".parse().unwrap(),
            },
            cluster: "söder".to_owned(),
            overlay: MESH.to_owned(),
            protocol: Protocol { version: 1, since: 1 },
            stream: 2,
            received,
            connections: 1,
            lane: 0,
        }
    }

    #[test]
    fn greetings_come_back_and_later_properties_are_passed_over() {
        let progress = Progress { incarnation: Incarnation::new(8), stream: 1, seq: u64::MAX };
        let tree = Greeting { overlay: "tree".to_owned(), ..greeting(None) };
        let laned = Greeting { connections: 16, lane: 3, ..greeting(None) };
        for sent in [greeting(None), greeting(Some(progress)), tree, laned] {
            let mut user = sent.to_user();
            user.push((Utf8::from_static("colour"), Utf8::from_static("blue")));
            assert_eq!(Greeting::from_user(&user), Ok(sent));
        }
    }

    #[test]
    fn a_property_missing_or_twice_or_wrong_is_named() {
        let user = greeting(None).to_user();
        for index in 0..user.len() {
            let name = user[index].0.as_str().to_owned();
            let mut less = user.clone();
            less.remove(index);
            assert_eq!(Greeting::from_user(&less), Err(name.as_str()));
            let mut more = user.clone();
            more.push(user[index].clone());
            assert_eq!(Greeting::from_user(&more), Err(name.as_str()));
            let mut wrong = user.clone();
            wrong[index].1 = Utf8::from_static("1 x");
            assert!(name == "cluster" || Greeting::from_user(&wrong) == Err(name.as_str()), "{name}");
        }
    }

    #[test]
    fn long_cluster_names_are_cut_alike_on_both_sides() {
        let mut long = greeting(None);
        long.cluster = "ö".repeat(300);
        let read = Greeting::from_user(&long.to_user()).unwrap();
        assert!(read.is_of(&"ö".repeat(400)));
        assert!(!read.is_of("ö"));
    }

    #[test]
    fn versions_have_to_overlap() {
        let with = |version, since| Protocol { version: 2, since: 1 }.common(Protocol { version, since });
        assert_eq!((with(1, 1), with(2, 1), with(3, 2), with(9, 1)), (Some(1), Some(2), Some(2), Some(2)));
        assert_eq!((with(3, 3), with(0, 0), with(1, 2)), (None, None, None));
    }
}
