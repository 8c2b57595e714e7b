//! Flags of the Mosquitto clients that clap cannot describe: `-D` takes three or four arguments, and some flags are not there.

use std::ffi::{OsStr, OsString};

use crate::failure::Failure;

/// Separates the parts of one `-D`; no MQTT string on a command line holds it.
pub(crate) const SEPARATOR: char = '\u{1f}';

/// Flags whose value may look like a flag: the argument after them is left alone.
const TAKES_ANY: &[&str] = &["-m", "--message", "-t", "--topic", "-u", "--username", "-P", "--pw", "-i", "--id", "-F"];

/// Flags of the Mosquitto clients that are not there, with the explanation.
const MISSING: &[(&[&str], &str)] = &[
    (
        &["--ciphers", "--tls-engine", "--tls-engine-kpass-sha1", "--psk", "--psk-identity"],
        "not supported; TLS has --cafile, --capath, --cert, --key, --tls-version, --tls-alpn and --insecure",
    ),
    (&["-S"], "SRV lookups are not supported; use -h and -p"),
];

/// Makes one argument of the three or four that follow `-D`: how many they are depends on the second.
pub(crate) fn fold_properties(arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    if !arguments.get(1).is_some_and(|command| command == "pub" || command == "sub") {
        return Ok(arguments);
    }
    let mut folded: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let is_value = folded.last().is_some_and(|last| TAKES_ANY.iter().any(|flag| last == OsStr::new(flag)));
        if is_value || (argument != "-D" && argument != "--property") {
            folded.push(argument);
            continue;
        }
        folded.push(OsString::from("-D"));
        folded.push(OsString::from(one_property(&mut rest)?));
    }
    Ok(folded)
}

fn one_property(rest: &mut impl Iterator<Item = OsString>) -> Result<String, Failure> {
    let mut part = || {
        let text = rest.next().ok_or_else(incomplete)?;
        text.into_string().ok().ok_or_else(|| Failure::usage("-D: a property is UTF-8 text"))
    };
    let (packet, name) = (part()?, part()?);
    let count = if name == "user-property" { 2 } else { 1 };
    let mut joined = format!("{packet}{SEPARATOR}{name}");
    for _ in 0..count {
        joined.push(SEPARATOR);
        joined.push_str(&part()?);
    }
    Ok(joined)
}

fn incomplete() -> Failure {
    Failure::usage(
        "-D takes PACKET NAME VALUE, for example -D PUBLISH content-type text/plain, or PACKET user-property NAME VALUE",
    )
}

/// The explanation of an unknown flag, if users of the Mosquitto clients may expect the flag.
pub(crate) fn explain_unknown(flag: &str) -> Option<String> {
    let flag = flag.split('=').next().unwrap_or(flag);
    let (_, reason) = MISSING.iter().find(|(flags, _)| flags.contains(&flag))?;
    Some(format!("{flag}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(arguments: &[&str]) -> Result<Vec<String>, Failure> {
        let folded = fold_properties(arguments.iter().map(OsString::from).collect())?;
        Ok(folded.into_iter().map(|part| part.into_string().unwrap()).collect())
    }

    #[test]
    fn properties_take_three_or_four_values() {
        let folded =
            fold(&["sedge", "pub", "-D", "PUBLISH", "user-property", "-a", "b", "-D", "connect", "x", "1", "-n"]);
        assert_eq!(
            folded.unwrap(),
            ["sedge", "pub", "-D", "PUBLISH\u{1f}user-property\u{1f}-a\u{1f}b", "-D", "connect\u{1f}x\u{1f}1", "-n"]
        );
    }

    #[test]
    fn a_payload_is_no_flag() {
        let line = ["sedge", "pub", "-m", "-D", "-t", "a"];
        assert_eq!(fold(&line).unwrap(), line);
        assert_eq!(fold(&["sedge", "status", "-D"]).unwrap(), ["sedge", "status", "-D"]);
    }

    #[test]
    fn an_incomplete_property_is_explained() {
        let failure = fold(&["sedge", "sub", "-D", "connect", "user-property", "a"]).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.unwrap().contains("user-property NAME VALUE"));
    }

    #[test]
    fn missing_flags_are_explained() {
        assert!(explain_unknown("--psk=x").unwrap().starts_with("--psk: not supported; TLS has --cafile"));
        assert_eq!(explain_unknown("--nonsense"), None);
    }
}
