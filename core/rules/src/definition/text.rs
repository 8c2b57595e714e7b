//! Times and sizes as texts.

/// Milliseconds of a time such as `10s`; a number alone is seconds.
pub(super) fn millis(text: &str) -> Option<u64> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Bytes of a size such as `16MiB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (digits, unit.trim())
}

/// Milliseconds as people write them.
pub(super) fn shown(millis: u64) -> String {
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(86_400_000) => format!("{}d", millis / 86_400_000),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}
