//! A field of a JSON document without the rest of it: what lies before it is stepped over, what lies behind it is never looked at.

use std::borrow::Cow;

use crate::value::Value;

/// Deepest nesting of a document that is taken over into an output.
const DEPTH_MAX: usize = 128;

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into the member of an object.
    Key(Box<str>),
    /// Into the element of an array, counted from 0.
    Index(usize),
}

/// The text of the value that lies at the end of a path, without white space around it. Of members with the same name the first counts.
/// A document that is no JSON gives nothing, or what it holds before its fault.
pub(crate) fn find<'a>(document: &'a [u8], path: &[Step]) -> Option<&'a [u8]> {
    let mut cursor = Cursor { bytes: document, at: 0 };
    cursor.space();
    for step in path {
        match step {
            Step::Key(key) => cursor.member(key.as_bytes())?,
            Step::Index(index) => cursor.element(*index)?,
        }
    }
    let start = cursor.at;
    cursor.skip()?;
    if path.is_empty() {
        let end = cursor.at;
        cursor.space();
        return if cursor.at == document.len() { document.get(start..end) } else { None };
    }
    document.get(start..cursor.at)
}

/// A text of JSON as value: numbers, strings and words are read, objects and arrays stay text.
pub(crate) fn read(text: &[u8]) -> Option<Value<'_>> {
    Some(match text.first()? {
        b'"' => Value::Text(string(text.get(1..text.len().checked_sub(1)?)?)?),
        b'{' | b'[' => Value::Json(Cow::Borrowed(core::str::from_utf8(text).ok()?)),
        b't' if text == b"true" => Value::Bool(true),
        b'f' if text == b"false" => Value::Bool(false),
        b'n' if text == b"null" => Value::Null,
        b'-' | b'0'..=b'9' if is_number(text) => Value::number(core::str::from_utf8(text).ok()?.parse().ok()?),
        _ => return None,
    })
}

/// Whether a text is one whole JSON value, not nested too deeply: for values that are written out unchanged.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    let mut cursor = Cursor { bytes: text, at: 0 };
    cursor.space();
    cursor.check().is_some() && {
        cursor.space();
        cursor.at == text.len()
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// Steps over a string; gives the text between its quotes, and whether there is a backslash in it.
    fn quoted(&mut self) -> Option<(&'a [u8], bool)> {
        self.take(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        let inside = self.bytes.get(start..self.at)?;
        self.at += 1;
        Some((inside, escaped))
    }

    /// Steps over a value without reading it.
    fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.quoted().map(|_| ()),
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match self.peek()? {
                        b'"' => {
                            self.quoted()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        return Some(());
                    }
                }
            }
            _ => {
                let start = self.at;
                while !matches!(
                    self.peek(),
                    None | Some(b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"' | b' ' | b'\t' | b'\n' | b'\r')
                ) {
                    self.at += 1;
                }
                (self.at > start).then_some(())
            }
        }
    }

    /// From the start of an object to the start of a member's value.
    fn member(&mut self, wanted: &[u8]) -> Option<()> {
        self.take(b'{')?;
        loop {
            self.space();
            let (key, escaped) = self.quoted()?;
            self.space();
            self.take(b':')?;
            self.space();
            let same = if escaped { string(key).is_some_and(|key| key.as_bytes() == wanted) } else { key == wanted };
            if same {
                return Some(());
            }
            self.skip()?;
            self.space();
            self.take(b',')?;
        }
    }

    /// From the start of an array to the start of an element.
    fn element(&mut self, index: usize) -> Option<()> {
        self.take(b'[')?;
        self.space();
        for _ in 0..index {
            self.skip()?;
            self.space();
            self.take(b',')?;
            self.space();
        }
        (self.peek()? != b']').then_some(())
    }

    /// Steps over a value that is well formed; `None` at the first fault.
    fn check(&mut self) -> Option<()> {
        // Whether each open bracket is that of an object.
        let mut open: smallvec::SmallVec<[bool; 16]> = smallvec::SmallVec::new();
        loop {
            self.space();
            let opened = match self.peek()? {
                b'{' => Some(true),
                b'[' => Some(false),
                _ => None,
            };
            if let Some(object) = opened {
                self.at += 1;
                self.space();
                if self.take(if object { b'}' } else { b']' }).is_none() {
                    if open.len() == DEPTH_MAX {
                        return None;
                    }
                    open.push(object);
                    if object {
                        self.key()?;
                    }
                    continue;
                }
            } else {
                self.scalar()?;
            }
            // A value has ended: what encloses it goes on or ends with it.
            loop {
                let Some(&object) = open.last() else { return Some(()) };
                self.space();
                if self.take(b',').is_some() {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                self.take(if object { b'}' } else { b']' })?;
                open.pop();
            }
        }
    }

    fn key(&mut self) -> Option<()> {
        self.space();
        let (key, _) = self.quoted()?;
        string(key)?;
        self.space();
        self.take(b':')
    }

    fn scalar(&mut self) -> Option<()> {
        let start = self.at;
        self.skip()?;
        read(self.bytes.get(start..self.at)?).map(|_| ())
    }
}

/// Whether a text is a number as JSON writes it (RFC 8259 section 6).
fn is_number(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 { None } else { text.get(count..) }
    }
    let whole = text.strip_prefix(b"-").unwrap_or(text);
    if whole.len() > 1 && whole.starts_with(b"0") && whole.get(1).is_some_and(u8::is_ascii_digit) {
        return false;
    }
    let Some(mut rest) = digits(whole) else { return false };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let Some(after) = digits(fraction) else { return false };
        rest = after;
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        return digits(exponent).is_some_and(<[u8]>::is_empty);
    }
    rest.is_empty()
}

/// The text of a JSON string, read from the bytes between its quotes.
fn string(inside: &[u8]) -> Option<Cow<'_, str>> {
    let text = core::str::from_utf8(inside).ok()?;
    if inside.iter().any(|&byte| byte < 0x20) {
        return None;
    }
    if !inside.contains(&b'\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        out.push(match chars.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            same @ ('"' | '\\' | '/') => same,
            'u' => unicode(&mut chars)?,
            _ => return None,
        });
    }
    Some(Cow::Owned(out))
}

/// The character behind `\u`, of one unit or two.
fn unicode(chars: &mut core::str::Chars<'_>) -> Option<char> {
    fn unit(chars: &mut core::str::Chars<'_>) -> Option<u32> {
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | chars.next()?.to_digit(16)?))
    }
    let first = unit(chars)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    if chars.next()? != '\\' || chars.next()? != 'u' {
        return None;
    }
    let second = unit(chars)?;
    let low = (0xdc00..0xe000).contains(&second).then(|| second - 0xdc00)?;
    char::from_u32(0x1_0000 + ((first - 0xd800) << 10 | low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;

    fn key(name: &str) -> Step {
        Step::Key(name.into())
    }

    fn at<'a>(document: &'a str, path: &[Step]) -> Option<&'a str> {
        find(document.as_bytes(), path).map(|found| core::str::from_utf8(found).unwrap())
    }

    /// DP-02
    #[test]
    fn a_field_is_found_wherever_it_lies() {
        let text = r#" { "a" : {"b":[1, {"c": "x}\"]"} ,3]}, "b" : -1.5e3 , "b":2, "\u0064":true } "#;
        assert_eq!(at(text, &[key("a"), key("b"), Step::Index(1), key("c")]), Some(r#""x}\"]""#));
        assert_eq!(at(text, &[key("a"), key("b"), Step::Index(2)]), Some("3"));
        assert_eq!(at(text, &[key("a"), key("b"), Step::Index(3)]), None);
        assert_eq!(at(text, &[key("b")]), Some("-1.5e3"));
        assert_eq!(at(text, &[key("d")]), Some("true"));
        assert_eq!(at(text, &[key("e")]), None);
        assert_eq!(at(text, &[]), Some(text.trim()));
        assert_eq!(at("21.5", &[]), Some("21.5"));
        assert_eq!(at("21.5 C", &[]), None);
        assert_eq!(at("[]", &[Step::Index(0)]), None);
    }

    #[test]
    fn what_lies_behind_a_field_is_not_looked_at() {
        assert_eq!(at(r#"{"a":1,"#, &[key("a")]), Some("1"));
        assert_eq!(at(r#"{"b":2,"a""#, &[key("a")]), None);
        assert_eq!(at(r#"{"b":"open,"a":1}"#, &[key("a")]), None);
        assert_eq!(at(r#"{"b":"ends with \"#, &[key("a")]), None);
    }

    fn document() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i32>().prop_map(Json::from),
            (-1e9..1e9).prop_map(|number: f64| Json::from((number * 8.0).round() / 8.0)),
            "[a-c\"\\\\\u{0}-\u{ff}😀/]{0,6}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::btree_map("[a-c\"\\\\\u{1}é]{0,2}", inner, 0..5)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Every path into a document, with what lies there.
    fn paths<'a>(value: &'a Json, path: &mut Vec<Step>, all: &mut Vec<(Vec<Step>, &'a Json)>) {
        all.push((path.clone(), value));
        let inner: Vec<(Step, &Json)> = match value {
            Json::Array(items) => items.iter().enumerate().map(|(at, item)| (Step::Index(at), item)).collect(),
            Json::Object(members) => members.iter().map(|(name, value)| (key(name), value)).collect(),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Vec::new(),
        };
        for (step, value) in inner {
            path.push(step);
            paths(value, path, all);
            path.pop();
        }
    }

    fn same(own: &Value<'_>, theirs: &Json) -> bool {
        match theirs {
            Json::Null => *own == Value::Null,
            Json::Bool(flag) => *own == Value::Bool(*flag),
            Json::Number(number) => own.as_number() == number.as_f64(),
            Json::String(text) => own.as_text() == Some(text),
            Json::Array(_) | Json::Object(_) => {
                matches!(own, Value::Json(text) if serde_json::from_str::<Json>(text).unwrap() == *theirs)
            }
        }
    }

    proptest! {
        /// DP-02
        #[test]
        fn every_field_of_every_document_is_what_a_whole_parser_finds(document in document(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }.unwrap();
            prop_assert!(is_valid(text.as_bytes()));
            let mut all = Vec::new();
            paths(&document, &mut Vec::new(), &mut all);
            for (path, wanted) in all {
                let found = find(text.as_bytes(), &path).and_then(read);
                prop_assert!(found.as_ref().is_some_and(|found| same(found, wanted)), "{text} {path:?} {found:?}");
                let mut beyond = path.clone();
                beyond.push(key("not there"));
                prop_assert_eq!(find(text.as_bytes(), &beyond), None);
            }
        }

        #[test]
        fn what_is_valid_is_what_a_whole_parser_takes(document in document(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = serde_json::to_vec(&document).unwrap();
            let at = at.index(text.len());
            text[at] = byte;
            let theirs = serde_json::from_slice::<Json>(&text).is_ok();
            // Numbers beyond what a double holds are an error there and null here.
            prop_assert!(is_valid(&text) == theirs || text.contains(&b'e') || text.contains(&b'E'), "{:?}", String::from_utf8_lossy(&text));
        }
    }
}
