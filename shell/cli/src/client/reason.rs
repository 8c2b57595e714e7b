//! Reason codes in words.

use sedge_mqtt::ReasonCode;

/// The reason as a person reads it: `not authorized (0x87)`.
pub(crate) fn reason_words(reason: ReasonCode) -> String {
    let name = format!("{reason:?}").replace("QoS", "Qos");
    let mut words = String::with_capacity(name.len() + 16);
    for (index, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && index > 0 {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    format!("{} (0x{:02x})", words.replace("qos", "QoS"), reason.as_u8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_words() {
        assert_eq!(reason_words(ReasonCode::NotAuthorized), "not authorized (0x87)");
        assert_eq!(reason_words(ReasonCode::QoSNotSupported), "QoS not supported (0x9b)");
        assert_eq!(reason_words(ReasonCode::Success), "success (0x00)");
    }
}
