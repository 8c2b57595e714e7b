//! Short texts of numbers, written without allocation and read without mercy: one spelling for each value.

use sedge_base::NodeId;
use smallvec::SmallVec;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Fields separated by single spaces.
#[derive(Debug, Default)]
pub(super) struct Text(SmallVec<[u8; 256]>);

impl Text {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a word of ASCII.
    pub(super) fn word(&mut self, word: &str) -> &mut Self {
        self.space();
        self.0.extend_from_slice(word.as_bytes());
        self
    }

    /// Appends a number in decimal digits.
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.space();
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&digits[at..]);
        self
    }

    /// Appends a node id as its 16 hexadecimal digits.
    pub(super) fn node(&mut self, node: NodeId) -> &mut Self {
        self.space();
        self.0.extend((0..16).rev().map(|digit| HEX[(node.get() >> (4 * digit) & 15) as usize]));
        self
    }

    fn space(&mut self) {
        if !self.0.is_empty() {
            self.0.push(b' ');
        }
    }
}

/// Reads what [`Text`] has written, field by field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(Option<&'a str>);

impl<'a> Fields<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self(Some(text))
    }

    /// The next field; `None` at the end.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let (word, rest) = rest.split_once(' ').map_or((rest, None), |(word, rest)| (word, Some(rest)));
        self.0 = rest;
        Some(word)
    }

    /// The next field, if it is a number as [`number`] takes it.
    pub(super) fn number(&mut self) -> Option<u64> {
        number(self.word()?)
    }

    /// The next field, if it is a node id as [`node`] takes it.
    pub(super) fn node(&mut self) -> Option<NodeId> {
        node(self.word()?)
    }

    /// Whether all fields are read.
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_none()
    }
}

/// A number in decimal digits, without sign or leading zeros.
pub(super) fn number(text: &str) -> Option<u64> {
    if text.is_empty() || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A node id as 16 small hexadecimal digits.
pub(super) fn node(text: &str) -> Option<NodeId> {
    if text.len() != 16 || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let mut text = Text::default();
        text.number(0).number(u64::MAX).word("=").node(NodeId::new(0xa1));
        assert_eq!(text.as_bytes(), b"0 18446744073709551615 = 00000000000000a1");
        let mut fields = Fields::new(core::str::from_utf8(text.as_bytes()).unwrap());
        assert_eq!(fields.number(), Some(0));
        assert_eq!(fields.number(), Some(u64::MAX));
        assert_eq!(fields.word(), Some("="));
        assert!(!fields.is_at_end());
        assert_eq!(fields.node(), Some(NodeId::new(0xa1)));
        assert!(fields.is_at_end());
        assert_eq!(fields.word(), None);
    }

    #[test]
    fn other_spellings_are_refused() {
        for bad in ["", "+1", "-1", "01", " 1", "1a", "18446744073709551616", "\u{661}"] {
            assert_eq!(number(bad), None, "{bad}");
        }
        for bad in ["a1", "00000000000000A1", "+0000000000000a1", "00000000000000g1"] {
            assert_eq!(node(bad), None, "{bad}");
        }
        let mut fields = Fields::new("1 ");
        assert_eq!((fields.number(), fields.number()), (Some(1), None));
    }
}
