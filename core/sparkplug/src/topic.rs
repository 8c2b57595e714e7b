//! The levels of a topic (specification, chapter 4).

/// The first level of all topics of Sparkplug B.
pub const NAMESPACE: &str = "spBv1.0";

/// Prefix of the topic of a birth where a broker keeps it (specification, conformance of a Sparkplug Aware MQTT Server).
pub const CERTIFICATES: &str = "$sparkplug/certificates/";

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An edge node names itself and its metrics.
    NodeBirth,
    /// An edge node names a device and the metrics of the device.
    DeviceBirth,
    /// Values of an edge node's metrics.
    NodeData,
    /// Values of a device's metrics.
    DeviceData,
    /// A command for an edge node.
    NodeCommand,
    /// A command for a device.
    DeviceCommand,
    /// An edge node is gone.
    NodeDeath,
    /// A device is gone.
    DeviceDeath,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::NodeBirth,
        Self::DeviceBirth,
        Self::NodeData,
        Self::DeviceData,
        Self::NodeCommand,
        Self::DeviceCommand,
        Self::NodeDeath,
        Self::DeviceDeath,
    ];

    /// How topics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeBirth => "NBIRTH",
            Self::DeviceBirth => "DBIRTH",
            Self::NodeData => "NDATA",
            Self::DeviceData => "DDATA",
            Self::NodeCommand => "NCMD",
            Self::DeviceCommand => "DCMD",
            Self::NodeDeath => "NDEATH",
            Self::DeviceDeath => "DDEATH",
        }
    }

    /// Whether the message says which metrics there are.
    pub const fn is_birth(self) -> bool {
        matches!(self, Self::NodeBirth | Self::DeviceBirth)
    }

    /// Whether the message brings values of metrics.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::NodeData | Self::DeviceData)
    }

    /// Whether the message is about a device of an edge node.
    pub const fn is_of_device(self) -> bool {
        matches!(self, Self::DeviceBirth | Self::DeviceData | Self::DeviceCommand | Self::DeviceDeath)
    }
}

/// A topic of Sparkplug B: `spBv1.0/GROUP/KIND/NODE` or `spBv1.0/GROUP/KIND/NODE/DEVICE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic<'a> {
    /// Group of the edge node.
    pub group: &'a str,
    /// Kind of the message.
    pub kind: Kind,
    /// The edge node; its name is unique in its group.
    pub node: &'a str,
    /// A device of the edge node.
    pub device: Option<&'a str>,
}

impl<'a> Topic<'a> {
    /// Reads a topic; `None` if it is none of Sparkplug B, or that of a host application's state.
    pub fn parse(topic: &'a str) -> Option<Self> {
        let mut levels = topic.strip_prefix(NAMESPACE)?.strip_prefix('/')?.split('/');
        let (group, kind, node) = (levels.next()?, levels.next()?, levels.next()?);
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let device = levels.next();
        let is_whole = levels.next().is_none() && device.is_some() == kind.is_of_device();
        let is_named = !group.is_empty() && !node.is_empty() && device != Some("");
        (is_whole && is_named).then_some(Self { group, kind, node, device })
    }

    /// The topic of commands for this edge node.
    pub fn command(&self) -> String {
        format!("{NAMESPACE}/{}/{}/{}", self.group, Kind::NodeCommand.name(), self.node)
    }
}

/// Topic under which a broker keeps a publication to `topic`, if that is the birth of an edge node or device.
pub fn certificate(topic: &str) -> Option<String> {
    Topic::parse(topic).filter(|topic| topic.kind.is_birth()).map(|_| format!("{CERTIFICATES}{topic}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_say_who_and_what() {
        let node = Topic { group: "g", kind: Kind::NodeData, node: "e", device: None };
        assert_eq!(Topic::parse("spBv1.0/g/NDATA/e"), Some(node));
        let device = Topic { kind: Kind::DeviceBirth, device: Some("d"), ..node };
        assert_eq!(Topic::parse("spBv1.0/g/DBIRTH/e/d"), Some(device));
        assert_eq!(device.command(), "spBv1.0/g/NCMD/e");
        for other in [
            "spBv1.0",
            "spBv1.0/STATE/host",
            "spBv1.0/g/STATE/host",
            "spBv1.0/g/NDATA",
            "spBv1.0/g/NDATA/",
            "spBv1.0//NDATA/e",
            "spBv1.0/g/NDATA/e/d",
            "spBv1.0/g/DDATA/e",
            "spBv1.0/g/DDATA/e/",
            "spBv1.0/g/DDATA/e/d/x",
            "spBv1.0x/g/NDATA/e",
            "spAv1.0/g/NDATA/e",
            "$sparkplug/certificates/spBv1.0/g/NBIRTH/e",
        ] {
            assert_eq!(Topic::parse(other), None, "{other}");
        }
    }

    #[test]
    fn births_alone_have_certificates() {
        let node = certificate("spBv1.0/g/NBIRTH/e");
        assert_eq!(node.as_deref(), Some("$sparkplug/certificates/spBv1.0/g/NBIRTH/e"));
        let device = certificate("spBv1.0/g/DBIRTH/e/d");
        assert_eq!(device.as_deref(), Some("$sparkplug/certificates/spBv1.0/g/DBIRTH/e/d"));
        assert_eq!(certificate("spBv1.0/g/NDATA/e"), None);
    }
}
