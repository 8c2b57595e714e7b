//! How the nodes of a cluster are started, and how they are told of each other.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The nodes of which each node is told at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// Each node of all others.
    #[default]
    Mesh,
    /// Each node of the next.
    Line,
    /// Each node of the first.
    Star,
}

impl Shape {
    /// The nodes that node `node` of `nodes` is told of.
    pub(crate) fn peers(self, node: usize, nodes: usize) -> Vec<usize> {
        match self {
            Self::Mesh => (0..nodes).filter(|other| *other != node).collect(),
            Self::Line => (node + 1..nodes).take(1).collect(),
            Self::Star => (0..1).filter(|hub| *hub != node).collect(),
        }
    }
}

/// Interface that answers questions about the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StatusApi {
    /// Nothing: messages have to show that the nodes have found each other.
    #[default]
    None,
    /// The HTTP API of Sedge at `{http_port}`.
    Sedge,
}

/// How a cluster of brokers is started.
///
/// Places in the command and in files: `{node}` (name) and `{number}` (from 0) of the node, `{nodes}` (how many), `{address}` (where
/// the others reach it), `{bind}` (where it is to listen for clients), `{port}`, `{cluster_port}`, `{http_port}` and `{dir}` of the node, `{seeds}` (`ADDRESS:CLUSTER_PORT` of its peers, separated by
/// commas), `{next}` (the same of the next node alone), `{links}` (the text `link` for each of its peers, with `{peer}`, `{peer_address}` and `{peer_port}`), `{overlay}` (what is before a
/// colon in the name of the overlay), `{topic_roots}` (what is behind it, or `capacity`), `{skip_graph_method}` and `{skip_graph_base}` (what is behind `skip-graph:`, in any
/// order, or `sfb` and `2`) and `{encryption}` (of links: `on` or `off`),
/// `{capacity}` (what the node can carry; 0: it finds out).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterRecipe {
    /// Name in reports.
    pub(crate) name: String,
    /// Command of a node for the shell, which it replaces.
    pub(crate) command: String,
    /// Files in the directory of each node.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    /// The nodes of which each node is told.
    #[serde(default)]
    pub(crate) shape: Shape,
    /// Text that stands for a peer in `{links}`.
    #[serde(default)]
    pub(crate) link: String,
    /// Interface that answers questions about the cluster.
    #[serde(default)]
    pub(crate) status: StatusApi,
    /// Command whose first line of output says the version.
    #[serde(default)]
    pub(crate) version: String,
}

/// One node as its recipe sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) name: String,
    /// Address of the node for the others.
    pub(crate) address: String,
    /// Address of the node for clients.
    pub(crate) outside: String,
    /// Address that it listens at for clients.
    pub(crate) bind: &'static str,
    /// Ports for clients, other nodes and HTTP.
    pub(crate) port: u16,
    pub(crate) cluster_port: u16,
    pub(crate) http_port: u16,
    pub(crate) dir: String,
    /// Capacity of the node; 0: the node finds out by itself.
    pub(crate) capacity: u32,
}

const SEDGE: &str = "env -u SEDGE_CLUSTER__KEY_FILE -u SEDGE_CLUSTER__ADVERTISE -u SEDGE_NODE__ID SEDGE_CLUSTER__KEY=benchmark-cluster \
    SEDGE_CLUSTER__BIND={address} SEDGE_CLUSTER__SEEDS={seeds} SEDGE_CLUSTER__OVERLAY={overlay} SEDGE_CLUSTER__TOPIC_ROOTS={topic_roots} SEDGE_CLUSTER__SKIP_GRAPH_METHOD={skip_graph_method} SEDGE_CLUSTER__SKIP_GRAPH_BASE={skip_graph_base} SEDGE_CLUSTER__ENCRYPTION={encryption} SEDGE_CLUSTER__CAPACITY={capacity} SEDGE_HTTP__ENABLED=true SEDGE_HTTP__BIND={bind} \
    SEDGE_AUTH__ANONYMOUS=always \
    sedge serve --name {node} --bind {bind} --port {port} --cluster-port {cluster_port} --http-port {http_port}";

/// Links by hand: each node has one to the next, and no other.
const ROW: &str = "env SEDGE_CLUSTER__LINKS=manual SEDGE_CLUSTER__NEIGHBOURS={next} ";

const MOSQUITTO: &str =
    "listener {port} {bind}\nallow_anonymous true\npersistence false\nmax_queued_messages 100000\n{links}";

const MOSQUITTO_LINK: &str = "connection {node}-to-{peer}\naddress {peer_address}:{peer_port}\ntopic # both 2\n\
    bridge_protocol_version mqttv311\nnotifications false\nrestart_timeout 1\n";

impl ClusterRecipe {
    /// Names of the recipes that are there.
    pub(crate) const NAMES: [&'static str; 4] = ["sedge", "sedge-row", "mosquitto-line", "mosquitto-star"];

    /// The recipe that is there under this name.
    pub(crate) fn built_in(name: &str) -> Option<Self> {
        let shape = match name {
            "sedge" | "sedge-row" => {
                let row = if name == "sedge-row" { ROW } else { "" };
                return Some(Self {
                    name: name.to_owned(),
                    command: format!("{row}{SEDGE}"),
                    status: StatusApi::Sedge,
                    version: "sedge --version".to_owned(),
                    ..Self::default()
                });
            }
            "mosquitto-line" => Shape::Line,
            "mosquitto-star" => Shape::Star,
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            command: "mosquitto -c {dir}/mosquitto.conf".to_owned(),
            files: [("mosquitto.conf".to_owned(), MOSQUITTO.to_owned())].into(),
            shape,
            link: MOSQUITTO_LINK.to_owned(),
            status: StatusApi::None,
            version: "mosquitto -h".to_owned(),
        })
    }

    /// Whether nodes can be given a cooperation algorithm by name.
    pub(crate) fn takes_overlay(&self) -> bool {
        self.command.contains("{overlay}") || self.files.values().any(|text| text.contains("{overlay}"))
    }

    /// The recipe with links that are not encrypted, so that an emulated network can tell what they carry.
    pub(crate) fn with_plain_links(self) -> Self {
        let plain = |text: String| text.replace("{encryption}", "off");
        let files = self.files.into_iter().map(|(name, text)| (name, plain(text))).collect();
        Self { command: plain(self.command), files, ..self }
    }

    /// `text` with its places filled for node `node` of `seats`.
    pub(crate) fn fill(&self, text: &str, seats: &[Seat], node: usize, overlay: &str) -> String {
        let peers = || self.shape.peers(node, seats.len()).into_iter().filter_map(|peer| seats.get(peer));
        let links: String = peers()
            .map(|peer| {
                let port = peer.port.to_string();
                let places = [("{peer}", &peer.name), ("{peer_address}", &peer.address), ("{peer_port}", &port)];
                places.into_iter().fold(self.link.clone(), |text, (place, value)| text.replace(place, value))
            })
            .collect();
        let variant = Variant::of(overlay);
        let seeds: Vec<String> = peers().map(|peer| format!("{}:{}", peer.address, peer.cluster_port)).collect();
        let next = seats.get(node + 1).map(|next| format!("{}:{}", next.address, next.cluster_port));
        let Some(seat) = seats.get(node) else { return text.to_owned() };
        let places = [
            // First, for what is filled in here has places of its own.
            ("{links}", links),
            ("{seeds}", seeds.join(",")),
            ("{next}", next.unwrap_or_default()),
            ("{node}", seat.name.clone()),
            ("{number}", node.to_string()),
            ("{nodes}", seats.len().to_string()),
            ("{address}", seat.address.clone()),
            ("{bind}", seat.bind.to_owned()),
            ("{port}", seat.port.to_string()),
            ("{cluster_port}", seat.cluster_port.to_string()),
            ("{http_port}", seat.http_port.to_string()),
            ("{dir}", seat.dir.clone()),
            ("{overlay}", variant.overlay.to_owned()),
            ("{topic_roots}", variant.topic_roots.to_owned()),
            ("{skip_graph_method}", variant.skip_graph_method.to_owned()),
            ("{skip_graph_base}", variant.skip_graph_base.to_owned()),
            ("{encryption}", "on".to_owned()),
            ("{capacity}", seat.capacity.to_string()),
        ];
        places.into_iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, &value))
    }
}

/// Parts of the name of an overlay, such as `topic-tree:balance` or `skip-graph:mrf:4`. Nodes refuse names that they do not know.
#[derive(Debug, PartialEq, Eq)]
struct Variant<'a> {
    overlay: &'a str,
    topic_roots: &'a str,
    skip_graph_method: &'a str,
    skip_graph_base: &'a str,
}

impl<'a> Variant<'a> {
    fn of(name: &'a str) -> Self {
        let (overlay, words) = name.split_once(':').map_or((name, None), |(overlay, words)| (overlay, Some(words)));
        let mut variant = Self { overlay, topic_roots: "capacity", skip_graph_method: "sfb", skip_graph_base: "2" };
        let Some(words) = words else { return variant };
        if overlay != "skip-graph" {
            variant.topic_roots = words;
            return variant;
        }
        for word in words.split(':') {
            let is_base = word.starts_with(|first: char| first.is_ascii_digit());
            *if is_base { &mut variant.skip_graph_base } else { &mut variant.skip_graph_method } = word;
        }
        variant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(count: u16) -> Vec<Seat> {
        let seat = |number: u16| Seat {
            name: format!("node-{}", number + 1),
            address: format!("10.0.0.{}", number + 1),
            outside: "127.0.0.1".to_owned(),
            bind: "127.0.0.1",
            port: 100 + number,
            cluster_port: 200 + number,
            http_port: 300 + number,
            dir: format!("/d/{number}"),
            capacity: 0,
        };
        (0..count).map(seat).collect()
    }

    #[test]
    fn everybody_is_told_of_those_that_the_shape_says() {
        let peers = |shape: Shape| (0..4).map(|node| shape.peers(node, 4)).collect::<Vec<_>>();
        assert_eq!(peers(Shape::Mesh), [vec![1, 2, 3], vec![0, 2, 3], vec![0, 1, 3], vec![0, 1, 2]]);
        assert_eq!(peers(Shape::Line), [vec![1], vec![2], vec![3], vec![]]);
        assert_eq!(peers(Shape::Star), [vec![], vec![0], vec![0], vec![0]]);
    }

    #[test]
    fn places_are_filled_and_none_is_left() {
        let seats = seats(3);
        for name in ClusterRecipe::NAMES {
            let recipe = ClusterRecipe::built_in(name).expect(name);
            assert_eq!(recipe.takes_overlay(), name.starts_with("sedge"));
            for node in 0..3 {
                for text in std::iter::once(&recipe.command).chain(recipe.files.values()) {
                    let filled = recipe.fill(text, &seats, node, "mesh");
                    assert!(!filled.contains(['{', '}']), "{filled}");
                }
            }
        }
        let sedge = ClusterRecipe::built_in("sedge").expect("a recipe");
        let command = sedge.fill(&sedge.command, &seats, 1, "mesh");
        assert!(command.contains("SEDGE_CLUSTER__SEEDS=10.0.0.1:200,10.0.0.3:202 "), "{command}");
        let command = sedge.fill(&sedge.command, &seats, 1, "topic-tree:balance");
        assert!(command.contains("OVERLAY=topic-tree SEDGE_CLUSTER__TOPIC_ROOTS=balance "), "{command}");
        assert!(command.contains("METHOD=sfb SEDGE_CLUSTER__SKIP_GRAPH_BASE=2 "), "{command}");
        for (name, method, base) in [
            ("", "sfb", "2"),
            (":mrf", "mrf", "2"),
            (":16", "sfb", "16"),
            (":mrf:4", "mrf", "4"),
            (":4:mrf", "mrf", "4"),
        ] {
            let name = format!("skip-graph{name}");
            let expected = Variant {
                overlay: "skip-graph",
                topic_roots: "capacity",
                skip_graph_method: method,
                skip_graph_base: base,
            };
            assert_eq!(Variant::of(&name), expected);
        }
        assert!(command.contains("ENCRYPTION=on "), "{command}");
        let plain = sedge.with_plain_links();
        assert!(plain.fill(&plain.command, &seats, 1, "mesh").contains("ENCRYPTION=off "));
        let line = ClusterRecipe::built_in("mosquitto-line").expect("a recipe");
        let text = line.files.get("mosquitto.conf").expect("a file");
        assert!(line.fill(text, &seats, 0, "").contains("address 10.0.0.2:101\n"));
        assert!(!line.fill(text, &seats, 2, "").contains("connection"), "the last of a line has nobody to call");
        let row = ClusterRecipe::built_in("sedge-row").expect("a recipe");
        assert!(row.fill(&row.command, &seats, 0, "mesh").contains("NEIGHBOURS=10.0.0.2:201 "));
        assert!(row.fill(&row.command, &seats, 2, "mesh").contains("NEIGHBOURS= "), "the last has no next");
        assert_eq!(ClusterRecipe::built_in("x"), None);
    }
}
