//! Actions of clients.

use sedge_base::Rng;
use sedge_mqtt::{QoS, TopicFilter, TopicName};

/// Something a client does next.
#[derive(Debug)]
pub(crate) enum Action {
    Publish { topic: TopicName, qos: QoS, retain: bool },
    Subscribe { filter: TopicFilter, qos: QoS },
    Unsubscribe,
    Drop,
    Disconnect,
    Nothing,
}

/// Filters that clients use; few, so that they meet.
const FILTERS: &[&str] = &["t/0", "t/1", "t/2", "t/3", "t/+", "t/#", "#", "+/1", "t/1/deep/+", "u/+/x"];

/// Topics that clients publish to.
const TOPICS: &[&str] = &["t/0", "t/1", "t/2", "t/3", "t", "t/1/deep/x", "u/1/x", "u//x"];

/// Draws the next action of a client.
pub(crate) fn draw(rng: &mut Rng, drops: bool) -> Action {
    let qos = *rng.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]).unwrap_or(&QoS::AtMostOnce);
    match rng.below(100) {
        0..70 => {
            let retain = rng.chance(1, 20);
            let text =
                if retain { format!("r/{}", rng.below(4)) } else { (*rng.pick(TOPICS).unwrap_or(&"t/0")).to_owned() };
            let Ok(topic) = TopicName::new(&text) else { unreachable!("{text} is a topic") };
            Action::Publish { topic, qos, retain }
        }
        70..85 => {
            let text = rng.pick(FILTERS).unwrap_or(&"#");
            let Ok(filter) = TopicFilter::new(text) else { unreachable!("{text} is a filter") };
            Action::Subscribe { filter, qos }
        }
        85..90 => Action::Unsubscribe,
        90..93 if drops => Action::Drop,
        93..94 if drops => Action::Disconnect,
        _ => Action::Nothing,
    }
}
