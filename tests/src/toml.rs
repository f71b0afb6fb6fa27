//! The part of TOML that texts of a run need: basic strings, and lists of them on one line.

/// `text` in quotes.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted += "\\\"",
            '\\' => quoted += "\\\\",
            '\n' => quoted += "\\n",
            '\t' => quoted += "\\t",
            '\r' => quoted += "\\r",
            _ if letter.is_control() => quoted += &format!("\\u{:04x}", letter as u32),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// The text at the front of `from`, and what follows its closing quote.
fn front(from: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = from.strip_prefix('"')?.chars();
    loop {
        match rest.next()? {
            '"' => return Some((text, rest.as_str())),
            '\\' => text.push(match rest.next()? {
                letter @ ('"' | '\\') => letter,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'u' => {
                    let digits = rest.as_str().get(..4)?;
                    rest = rest.as_str()[4..].chars();
                    char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
                }
                _ => return None,
            }),
            letter => text.push(letter),
        }
    }
}

/// A text alone.
pub fn text(value: &str) -> Option<String> {
    front(value).filter(|(_, rest)| rest.is_empty()).map(|(text, _)| text)
}

/// A list of texts.
pub fn texts(value: &str) -> Option<Vec<String>> {
    let mut rest = value.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let (text, behind) = front(rest)?;
        texts.push(text);
        rest = behind.trim_start();
        if let Some(behind) = rest.strip_prefix(',') {
            rest = behind.trim_start();
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(texts)
}
