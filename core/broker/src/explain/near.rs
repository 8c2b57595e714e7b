//! The subscription that a topic nearly matches.

use sedge_mqtt::{TopicFilter, TopicName};

use super::{Cause, Explanation};
use crate::session::Session;

/// Why none of the session's subscriptions matches.
pub(super) fn mismatch(session: &Session, topic: &TopicName) -> Explanation {
    let filters = || session.subscriptions.iter().map(|subscription| &subscription.filter);
    if filters().next().is_none() {
        return Explanation::no(Cause::NoSubscription, None, "the client has no subscription".to_owned());
    }
    let simple = filters().find_map(|filter| one_difference(filter, topic).map(|cause| (filter, cause)));
    if let Some((filter, cause)) = simple {
        let detail = if cause == Cause::Dollar {
            "a wildcard at the beginning does not match topics that begin with $"
        } else if cause == Cause::LetterCase {
            "they differ in the case of letters"
        } else {
            "they differ in a slash at the beginning or the end"
        };
        return Explanation::no(cause, Some(filter.clone()), detail.to_owned());
    }
    let nearest = filters().map(|filter| (common_levels(filter, topic), filter)).filter(|(common, _)| *common > 0);
    // Of several the first.
    let nearest = nearest.fold(None, |best: Option<(usize, &TopicFilter)>, next| match best {
        Some(best) if best.0 >= next.0 => Some(best),
        _ => Some(next),
    });
    let Some((common, filter)) = nearest else {
        let detail = format!("none of its {} subscriptions is near the topic", session.subscriptions.len());
        return Explanation::no(Cause::NoMatch, None, detail);
    };
    let (wants, has) = (filter.levels().nth(common), topic.levels().nth(common));
    let at = common + 1;
    let (cause, detail) = match (wants, has) {
        (Some(wants), Some(has)) => {
            (Cause::OtherLevel, format!("level {at} of the topic is {has:?}, the subscription wants {wants:?}"))
        }
        (Some(wants), None) => {
            (Cause::TooFewLevels, format!("the topic has no level {at}, the subscription wants {wants:?} there"))
        }
        (None, _) => {
            (Cause::TooManyLevels, format!("the topic has {} levels, the subscription {common}", topic.level_count()))
        }
    };
    Explanation::no(cause, Some(filter.clone()), detail)
}

/// Something small that keeps a filter from matching.
fn one_difference(filter: &TopicFilter, topic: &TopicName) -> Option<Cause> {
    let (wants, has) = (filter.filter(), topic.as_str());
    let matches = |filter: &str, topic: &str| {
        let parsed = (TopicFilter::new(filter).ok(), TopicName::new(topic).ok());
        matches!(parsed, (Some(filter), Some(topic)) if filter.matches(&topic))
    };
    if topic.is_reserved() && wants.starts_with(['+', '#']) && matches(wants, has.trim_start_matches('$')) {
        return Some(Cause::Dollar);
    }
    if matches(&wants.to_lowercase(), &has.to_lowercase()) {
        return Some(Cause::LetterCase);
    }
    matches(wants.trim_matches('/'), has.trim_matches('/')).then_some(Cause::Slash)
}

/// How many levels match, from the first on.
fn common_levels(filter: &TopicFilter, topic: &TopicName) -> usize {
    let mut equal = 0;
    let mut exact = false;
    for (wants, has) in filter.levels().zip(topic.levels()) {
        if wants != "+" && wants != has {
            break;
        }
        exact |= wants == has;
        equal += 1;
    }
    // A wildcard alone says nothing of the topic.
    if exact { equal } else { 0 }
}
