//! Access rules: their format, their decisions, and that the index agrees with a plain evaluation.

use std::fmt::Write;

use proptest::prelude::*;
use sedge_access::{Action, Reach, Rules, Verdict, Who};

const TEXT: &str = "\
# anonymous
topic read public/#
topic deny public/secret

user anna
topic readwrite home/anna/#
topic deny home/anna/diary
topic with blanks/x

client gateway-7
topic write raw/#
pattern write devices/%c/state
pattern read inbox/%u
pattern deny admin/#

user root
topic #
topic $SYS/#
";

fn rules() -> Rules {
    Rules::parse(TEXT).expect("valid")
}

fn who<'a>(user: Option<&'a str>, client: &'a str) -> Who<'a> {
    Who { user, client }
}

fn decide(user: Option<&str>, client: &str, action: Action, topic: &str) -> (bool, Option<u32>) {
    let Verdict { allowed, line } = rules().decide(who(user, client), action, topic);
    (allowed, line)
}

/// MQ-19
#[test]
fn rules_decide_by_user_client_and_pattern() {
    use Action::{Publish, Receive};
    assert_eq!(decide(None, "x", Receive, "public/a"), (true, Some(2)));
    assert_eq!(decide(None, "x", Publish, "public/a"), (false, None));
    assert_eq!(decide(None, "x", Receive, "public/secret"), (false, Some(3)));
    assert_eq!(decide(Some("anna"), "x", Receive, "public/a"), (false, None));
    assert_eq!(decide(Some("anna"), "x", Publish, "home/anna"), (true, Some(6)));
    assert_eq!(decide(Some("anna"), "x", Publish, "home/anna/diary"), (false, Some(7)));
    assert_eq!(decide(Some("anna"), "x", Publish, "with blanks/x"), (true, Some(8)));
    assert_eq!(decide(Some("anna"), "gateway-7", Publish, "raw/1"), (true, Some(11)));
    assert_eq!(decide(Some("anna"), "gateway-8", Publish, "raw/1"), (false, None));
    assert_eq!(decide(None, "d1", Publish, "devices/d1/state"), (true, Some(12)));
    assert_eq!(decide(None, "d2", Publish, "devices/d1/state"), (false, None));
    assert_eq!(decide(Some("bob"), "d2", Receive, "inbox/bob"), (true, Some(13)));
    assert_eq!(decide(None, "bob", Receive, "inbox/bob"), (false, None));
    assert_eq!(decide(Some("bob"), "d2", Receive, "admin/x"), (false, Some(14)));
    assert_eq!(decide(Some("root"), "d2", Receive, "admin/x"), (true, Some(17)));
    assert_eq!(decide(Some("root"), "d2", Receive, "$SYS/x"), (true, Some(18)));
    assert_eq!(decide(None, "d2", Receive, "$SYS/x"), (false, None));
}

/// MQ-19
#[test]
fn filters_are_judged_by_what_they_can_bring() {
    let judge = |user, filter| rules().judge(who(user, "c"), filter);
    assert_eq!(judge(None, "public/a/#"), Reach::All);
    assert_eq!(judge(None, "public/+"), Reach::Some);
    assert_eq!(judge(None, "public/secret"), Reach::Nothing);
    assert_eq!(judge(None, "#"), Reach::Some);
    let two = Rules::parse("pattern write #\ntopic read public/#\n").expect("valid");
    assert_eq!(two.judge(who(None, "r"), "#"), Reach::Some);
    assert_eq!(judge(None, "+"), Reach::Some, "public/# matches public");
    assert_eq!(judge(None, "home/#"), Reach::Nothing);
    assert_eq!(judge(Some("root"), "#"), Reach::All);
    assert_eq!(judge(Some("root"), "admin/#"), Reach::All, "lines of a user come before patterns");
    assert_eq!(judge(Some("root"), "$SYS/+"), Reach::All);
    assert_eq!(judge(Some("bob"), "admin/x"), Reach::Nothing);
    assert_eq!(judge(Some("bob"), "inbox/+"), Reach::Some);
    assert_eq!(judge(Some("bob"), "inbox/bob"), Reach::All);
    assert_eq!(judge(Some("bob"), "inbox/anna"), Reach::Nothing);
}

#[test]
fn errors_name_their_lines() {
    let wrong = "user\ntopic read a/#/b\nallow x\ntopic\ntopic read\nclient c\npattern a+/b\ntopic $share/g/a\n";
    let error = Rules::parse(wrong).expect_err("wrong");
    let lines: Vec<u32> = error.0.iter().map(|error| error.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 7, 8]);
    assert!(error.to_string().contains("line 3: \"allow\" is no rule"), "{error}");
    let deep = format!("topic {}x", "a/".repeat(128));
    assert!(Rules::parse(&deep).is_err());
}

#[test]
fn names_with_wildcards_are_only_names() {
    let rules = Rules::parse("pattern readwrite d/%c\npattern read u/%u/#").expect("valid");
    let joker = who(Some("+"), "#");
    assert_eq!(rules.judge(joker, "d/#"), Reach::Some);
    assert_eq!(rules.judge(joker, "u/+/x"), Reach::Some);
    assert!(!rules.decide(joker, Action::Receive, "u/anna/x").allowed);
    let reserved = Rules::parse("pattern read %c/#").expect("valid");
    assert!(!reserved.decide(who(None, "$SYS"), Action::Receive, "$SYS/broker").allowed);
    assert_eq!(reserved.judge(who(None, "$SYS"), "$SYS/#"), Reach::Nothing);
    let slash = who(Some("a/b"), "a/b");
    assert!(!rules.decide(slash, Action::Publish, "d/a/b").allowed);
}

/// A rule as text, and its meaning.
#[derive(Clone, Debug)]
struct Line {
    section: usize,
    word: &'static str,
    filter: String,
}

const SECTIONS: [&str; 4] = ["", "user u", "client c", "pattern"];

fn level() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("+"), Just("c"), Just("u"), Just(""), Just("$s"), Just("%c"), Just("x%u")]
        .prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    let level = prop_oneof![Just("a"), Just("b"), Just("c"), Just("u"), Just("xu"), Just(""), Just("$s"), Just("%c")];
    prop::collection::vec(level, 1..4).prop_map(|levels| levels.join("/")).prop_filter("not empty", |n| !n.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    (prop::collection::vec(level(), 0..4), any::<bool>())
        .prop_map(|(mut levels, hash)| {
            if hash || levels.is_empty() {
                levels.push("#".to_owned());
            }
            levels.join("/")
        })
        .prop_filter("not empty", |text| !text.is_empty())
}

fn line() -> impl Strategy<Value = Line> {
    let word = prop_oneof![Just("read"), Just("write"), Just("readwrite"), Just("deny")];
    (0..4_usize, word, filter()).prop_map(|(section, word, filter)| Line { section, word, filter })
}

fn text_of(lines: &[Line]) -> String {
    let mut sorted = lines.to_vec();
    sorted.sort_by_key(|line| line.section);
    let mut text = String::new();
    let mut section = 0;
    for line in &sorted {
        if line.section != section && line.section < 3 {
            section = line.section;
            text.push_str(SECTIONS[section]);
            text.push('\n');
        }
        let rule = if line.section == 3 { "pattern" } else { "topic" };
        let _ = writeln!(text, "{rule} {} {}", line.word, line.filter);
    }
    text
}

fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let (mut wanted, mut levels) = (filter.split('/'), topic.split('/'));
    loop {
        match (wanted.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

/// Whether a line of a section is for `who`, and its filter with names put in.
fn meant(line: &Line, who: Who<'_>) -> Option<String> {
    match line.section {
        0 => who.user.is_none().then(|| line.filter.clone()),
        1 => (who.user == Some("u")).then(|| line.filter.clone()),
        2 => (who.client == "c").then(|| line.filter.clone()),
        _ if line.filter.contains("%u") && who.user.is_none() => None,
        _ => Some(line.filter.replace("%c", who.client).replace("%u", who.user.unwrap_or_default())),
    }
}

fn plainly(lines: &[Line], who: Who<'_>, action: Action, topic: &str) -> bool {
    for stage in [0..3, 3..4] {
        let hits: Vec<&str> = lines
            .iter()
            .filter(|line| stage.contains(&line.section))
            .filter(|line| meant(line, who).is_some_and(|filter| matches(&filter, topic)))
            .map(|line| line.word)
            .collect();
        if hits.contains(&"deny") {
            return false;
        }
        let wanted = if action == Action::Publish { "write" } else { "read" };
        if hits.iter().any(|word| *word == "readwrite" || *word == wanted) {
            return true;
        }
    }
    false
}

fn anybody() -> impl Strategy<Value = (Option<&'static str>, &'static str)> {
    (prop_oneof![Just(None), Just(Some("u")), Just(Some("b"))], prop_oneof![Just("c"), Just("d"), Just("a")])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// MQ-19
    #[test]
    fn the_index_decides_as_a_plain_evaluation(
        lines in prop::collection::vec(line(), 0..10),
        topics in prop::collection::vec(name(), 1..10),
        (user, client) in anybody(),
    ) {
        let rules = Rules::parse(&text_of(&lines)).expect("valid");
        let who = who(user, client);
        for topic in &topics {
            for action in [Action::Publish, Action::Receive] {
                prop_assert_eq!(
                    rules.decide(who, action, topic).allowed,
                    plainly(&lines, who, action, topic),
                    "{:?} {} in\n{}", action, topic, text_of(&lines)
                );
            }
        }
    }

    /// MQ-19: a filter that is judged as everything or nothing is judged so for every topic that it matches.
    #[test]
    fn judgements_of_filters_hold_for_every_topic(
        lines in prop::collection::vec(line(), 0..10),
        topics in prop::collection::vec(name(), 1..30),
        filter in filter().prop_filter("templates are names here", |filter| !filter.contains('%')),
        (user, client) in anybody(),
    ) {
        let rules = Rules::parse(&text_of(&lines)).expect("valid");
        let who = who(user, client);
        let reach = rules.judge(who, &filter);
        for topic in topics.iter().filter(|topic| matches(&filter, topic)) {
            let allowed = rules.decide(who, Action::Receive, topic).allowed;
            prop_assert!(reach != Reach::All || allowed, "{} {} in\n{}", filter, topic, text_of(&lines));
            prop_assert!(reach != Reach::Nothing || !allowed, "{} {} in\n{}", filter, topic, text_of(&lines));
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in ".*") {
        let _ = Rules::parse(&text);
    }
}
