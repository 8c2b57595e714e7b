//! The trace of the publisher's own that a publication belongs to: W3C Trace Context in the user property `traceparent`.

use sedge_mqtt::Message;

/// Name of the user property, as of the header that the W3C's "Trace Context" defines.
const NAME: &str = "traceparent";

/// The value of `traceparent`. Its text is version `00`, trace, span and flags in lower-case hexadecimal, parted by hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never 0.
    pub trace: u128,
    /// The span that the publication came from; never 0.
    pub span: u64,
}

impl TraceParent {
    /// That of a message; `None` if it has none, or one that makes no sense: then it is ignored, as the W3C wants.
    pub fn of(message: &Message) -> Option<Self> {
        let user = &message.properties.as_ref()?.user;
        let (_, value) = user.iter().find(|(name, _)| name.as_str() == NAME)?;
        Self::parse(value.as_str())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // Later versions may have more parts behind; "ff" is none.
        let is_known = (version == "00" && parts.next().is_none()) || (version > "00" && version < "ff");
        let is_hex = |text: &str, digits| {
            text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_known || !is_hex(version, 2) || !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
            return None;
        }
        let parent = Self { trace: u128::from_str_radix(trace, 16).ok()?, span: u64::from_str_radix(span, 16).ok()? };
        (parent.trace != 0 && parent.span != 0).then_some(parent)
    }
}

impl core::fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{:032x}-{:016x}", self.trace, self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OP-07
    #[test]
    fn only_what_the_w3c_defines_is_a_parent() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let read = |text: String| TraceParent::parse(&text);
        let parent = read(format!("00-{trace}-{span}-01")).unwrap();
        assert_eq!(parent.to_string(), format!("{trace}-{span}"));
        assert_eq!(read(format!("00-{trace}-{span}-00")), Some(parent));
        assert_eq!(read(format!("cc-{trace}-{span}-01-more")), Some(parent), "of a later version");
        for wrong in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("0-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}0-{span}-01"),
            format!("00-{trace}-+{}-01", "7".repeat(15)),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }
}
