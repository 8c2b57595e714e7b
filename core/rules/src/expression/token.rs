//! Texts of expressions, cut into words.

use crate::error::Fault;

/// A word of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Number(f64),
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// The longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 21] =
    ["==", "!=", "<=", ">=", "&&", "||", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ".", ",", "!"];

/// All words of a text with where they begin, [`Token::End`] last.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let Some(first) = rest.chars().next() else {
            found.push((text.len(), Token::End));
            return Ok(found);
        };
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
            found.push((at, Token::Name(rest.get(..end).unwrap_or_default().to_owned())));
            end
        } else if first.is_ascii_digit() {
            let (number, length) = number(at, rest)?;
            found.push((at, Token::Number(number)));
            length
        } else if first == '\'' || first == '"' {
            let (word, length) = quoted(at, rest, first)?;
            found.push((at, Token::Text(word)));
            length
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            found.push((at, Token::Sign(sign)));
            sign.len()
        } else {
            let what = format!("{first:?} has no meaning here; texts stand in quotes: 'text'");
            return Err(Fault::new(at, what));
        };
        at += length;
    }
}

fn number(at: usize, rest: &str) -> Result<(f64, usize), Fault> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        end += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    let text = rest.get(..end).unwrap_or_default();
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|number| number.is_finite());
    let number = number.ok_or_else(|| Fault::new(at, format!("{text} is too large for a number")))?;
    if rest.get(end..).and_then(|rest| rest.chars().next()).is_some_and(|next| next.is_alphabetic() || next == '_') {
        return Err(Fault::new(at + end, "a letter behind a number: times are milliseconds without a unit here"));
    }
    Ok((number, end))
}

/// A text in quotes, and how long it is with them.
fn quoted(at: usize, rest: &str, quote: char) -> Result<(String, usize), Fault> {
    let mut word = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((offset, char)) = chars.next() {
        if char == quote {
            return Ok((word, offset + 1));
        }
        if char != '\\' {
            word.push(char);
            continue;
        }
        match chars.next() {
            Some((_, 'n')) => word.push('\n'),
            Some((_, 't')) => word.push('\t'),
            Some((_, same @ ('\\' | '\'' | '"'))) => word.push(same),
            _ => return Err(Fault::new(at + offset, "a backslash stands before \\, ', \", n or t")),
        }
    }
    Err(Fault::new(at, format!("this text has no end: add {quote}")))
}
