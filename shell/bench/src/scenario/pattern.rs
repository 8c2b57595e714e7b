//! Places in topics and filters that differ from client to client.

/// Numbers that a place can stand for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// `i`: number of the client in its group.
    pub(crate) client: u64,
    /// `t`: number of the topic that the client goes round over.
    pub(crate) topic: u64,
    /// `r`: a random number of the client.
    pub(crate) random: u64,
}

/// Replaces places: `{i}`, `{t}` or `{r}`, each with any number of divisions `/N` and remainders `%N`, from left to right.
/// `{i/30%3}` is the number of the client, divided by 30, and of that the remainder by 3.
pub(crate) fn expand(pattern: &str, numbers: Numbers) -> Result<String, String> {
    let mut text = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let Some((place, behind)) = after.split_once('}') else {
            return Err(format!("{pattern}: a {{ without }}"));
        };
        let value = evaluate(place, numbers).ok_or_else(|| format!("{pattern}: {{{place}}} is no place"))?;
        text.push_str(&value.to_string());
        rest = behind;
    }
    text.push_str(rest);
    Ok(text)
}

fn evaluate(place: &str, numbers: Numbers) -> Option<u64> {
    let mut letters = place.chars();
    let mut value = match letters.next()? {
        'i' => numbers.client,
        't' => numbers.topic,
        'r' => numbers.random,
        _ => return None,
    };
    let mut rest = letters.as_str();
    while let Some(operation) = rest.chars().next() {
        rest = rest.strip_prefix(operation)?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        value = match operation {
            '/' => value.checked_div(number)?,
            '%' => value.checked_rem(number)?,
            _ => return None,
        };
        rest = behind;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers { client: 187, topic: 4, random: 61 };

    #[test]
    fn places_are_computed_from_left_to_right() {
        let text = expand("House{i/90}/Flat{i/30%3}/Plug{i%30}/P{t}/{r%60}", NUMBERS);
        assert_eq!(text.as_deref(), Ok("House2/Flat0/Plug7/P4/1"));
        assert_eq!(expand("plain/#", NUMBERS).as_deref(), Ok("plain/#"));
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for wrong in ["{", "{x}", "{i+1}", "{i%0}", "{i/}", "{}", "{i"] {
            assert!(expand(wrong, NUMBERS).is_err(), "{wrong}");
        }
    }
}
